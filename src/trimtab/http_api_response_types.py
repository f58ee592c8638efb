"""The responses of the HTTP API, as plain values; the OpenAPI document is made from these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from trimtab.recall.visibility import VisibilityReason
from trimtab.session.visibility_and_past_requests import HiddenTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """An agent that is served."""

    name: str
    """Its name in paths."""
    model: str
    """The model that answers."""
    policy: str
    """The policy that decides what the model sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentList:
    agents: list[AgentInfo]
    """Those that you may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session in a list."""

    agent: str
    """The agent that answers in it."""
    name: str
    """Its name."""
    position: int
    """Events in its log."""
    messages: int
    """Messages ever added to it; undone ones count."""
    updated: float
    """When something last happened, in seconds since the epoch."""
    parent: str | None
    """The session that it was forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    sessions: list[SessionInfo]
    """In the order of their names."""
    next: str | None
    """Send it as `after` for the next page; null on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session as it stands."""

    agent: str
    """The agent that answers in it."""
    name: str
    """Its name."""
    position: int
    """Events in its log."""
    messages: int
    """Messages in force, hidden ones included."""
    visible: int
    """Messages that the model sees, whole or in part."""
    model: str
    """The model that answers now."""
    running: bool
    """Whether a turn runs in it on this server now."""
    waiting: int
    """Messages that wait for their turn, 100 at most."""
    failure_reason: str | None
    """Why the newest message has no answer: its turn failed for good, or the provider rejected the
    content (`rejected: …`); null otherwise. `resume` retries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallInfo:
    """A tool call of the model."""

    id: str
    """The provider's id; its result names it."""
    name: str
    """The tool."""
    arguments: str
    """JSON as the model wrote it; not always valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultInfo:
    """The result of a tool."""

    call_id: str
    """The id of the call that it answers."""
    text: str
    """All its text."""
    is_error: bool
    """Whether the tool failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInfo:
    """A picture or another file in a message."""

    type: str
    """What a model perceives in it."""
    mime: str | None
    """Its media type, where it is known."""
    url: str | None
    """Where it is; null where the content itself was sent."""
    handle: str
    """What it is called: the message and the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInfo:
    """A message in full, whatever the model sees of it now."""

    position: int
    """Where it stands in the log."""
    handle: str
    """What `why` and `recall` know it by."""
    at: float
    """When it was added, in seconds since the epoch."""
    role: str
    """`user`, `assistant`, `tool` or `system`."""
    text: str
    """All its text; that of tool results is in `tool_results`."""
    tool_calls: list[ToolCallInfo]
    """Tools that the model called."""
    tool_results: list[ToolResultInfo]
    """Results of tools."""
    media: list[MediaInfo]
    """Pictures and other files."""
    key: str | None
    """Its idempotency key, if it has one."""
    undone: bool = False
    """Whether it was undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    messages: list[MessageInfo]
    """In the order of the log."""
    next: int | None
    """Send it as `after` for later messages, or as `before` for earlier ones if you asked for
    those; null if there are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAccepted:
    """The message is queued and will be answered."""

    key: str
    """The message's idempotency key: sent again with it, the message is not added again."""
    duplicate: bool
    """Whether a message with this key was there already, so that nothing was added."""
    after: int
    """The log's position before the answer: later events belong to it."""
    events_url: str
    """Where to read them, as server-sent events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsageInfo:
    """Where the tokens of the next call would go."""

    text: str
    """The display, as a person reads it."""
    line: str
    """How full it is, on one line."""
    ledger: Mapping[str, Any]
    """Every figure by name: `limit`, `used`, `free`, `sections`, `hidden`, `cost`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledText:
    handle: str
    """The handle that was asked for."""
    text: str
    """The text exactly as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResultsText:
    query: str
    """The words that were searched for."""
    text: str
    """Passages with their handles, the best first; or that nothing was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    before: int
    """Tokens of the next call as it would have been."""
    after: int
    """Tokens of it now."""
    hidden: list[HiddenTotals]
    """What was hidden, by kind. Nothing is lost: `recall` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    to: int
    """The position whose state holds again."""
    messages: int
    """Messages that were undone."""
    text: str
    """The text of the first user message among them; empty if nothing was undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseResult:
    """What is erased, including what was erased before."""

    handles: list[str]
    """What was named, message by message; then answers of the recall tools that may have repeated
    it."""
    forks: list[str]
    """Sessions of this agent that were forked from this one: they have copies of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTotals:
    """What was erased of a user or a tenant."""

    sessions: int
    """Sessions that were deleted."""
    messages: int
    """Messages that were erased in sessions that stay: the user's, and the answers to them."""
    waiting: int
    """Messages that were erased while they waited for their turn."""
    unreadable: list[str]
    """Sessions `AGENT/NAME` whose logs are damaged, so that they were not searched; delete them."""
    configured_schedules: list[str]
    """Schedules `AGENT/NAME` of agent.yaml that write to a deleted session: they begin it anew
    until they are taken out of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecordInfo:
    """One erasure, without anything of the content."""

    at: float
    """When it was begun, in seconds since the epoch."""
    by: str
    """The name of the API key, `retention` or `command line`."""
    kind: str
    """`message`, `session`, `user` or `tenant`."""
    agent: str
    """The agent; empty for a user and a tenant."""
    target: str
    """A keyed digest of the user's or the session's id; ask with `user` or `session` to find it."""
    outcome: str
    """`begun`, then `done`, `incomplete` or `failed`. One that stays `begun` was cut off: make the
    same request again."""
    sessions: int
    """Sessions that were deleted."""
    messages: int
    """Messages that were erased in sessions that stay."""
    waiting: int
    """Messages that were erased while they waited for their turn."""
    duration_s: float
    """Seconds that it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecordList:
    erasures: list[ErasureRecordInfo]
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """A session that was created."""

    agent: str
    """The agent that answers in it."""
    name: str
    """Its name."""
    position: int
    """Events in its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnControlResult:
    done: bool
    """Whether there was anything to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSessionInfo:
    """A session with dead letters: its turn failed and is not retried."""

    agent: str
    """The agent that should have answered."""
    name: str
    """The session."""
    reason: str
    """The last error."""
    messages: int
    """Messages that have no answer."""
    at: float
    """When the last retry failed, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSessionList:
    sessions: list[DeadLetterSessionInfo]
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRetryResult:
    sessions: int
    """Sessions whose dead letters are retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthStatus:
    status: str
    """`ok`, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblemInfo:
    """One error in the body of a request."""

    field: str
    """Which field, by its path."""
    detail: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why a request failed, and what to do about it (RFC 9457)."""

    type: str
    """The kind of problem: `urn:trimtab:problem:not-found`."""
    title: str
    """The kind in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What happened."""
    help: str
    """What to do next."""
    errors: list[FieldProblemInfo] | None = None
    """If the body is invalid: what is wrong with each field."""
    waiting: int | None = None
    """If the queue is full: how many messages wait."""
    instance: str | None = None
    """If the server failed: the id of this error in its log."""


VisibilityInfo = VisibilityReason

AnyResponse = object
"""Any of the above."""


def encode_json_bytes(value: Any) -> bytes:
    """JSON in UTF-8; half a surrogate pair, which UTF-8 does not know, stays escaped."""
    plain: Any = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":")).encode()
