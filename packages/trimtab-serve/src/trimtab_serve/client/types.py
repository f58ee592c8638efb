"""The responses of the HTTP API, as plain values. The OpenAPI document is made from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from trimtab.session.history import HiddenTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """An agent that the server serves."""

    name: str
    """The name of the agent in paths."""
    model: str
    """The model that answers."""
    policy: str
    """The policy that decides what the model sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentList:
    agents: list[AgentInfo]
    """The agents that you may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUsage:
    """What your tenant stores and costs, and its limits."""

    tenant: str
    """The tenant of your key."""
    sessions: int
    """Number of sessions with forks, as of the last count."""
    max_sessions: int
    """The limit of that number."""
    stored_bytes: int
    """Bytes of all sessions, with waiting messages and dead letters, as of the last count."""
    max_stored_bytes: int
    """The limit of that number."""
    max_session_bytes: int
    """Bytes that one session may store."""
    max_messages_per_minute: int | None
    """Messages per minute that one process accepts from the tenant. None without a limit."""
    cost_today: float | None
    """US dollars that the model calls of this UTC day have cost, with the most that those which are
    being made may cost. None if the cost has no limit: then it is not counted."""
    max_cost_per_day: float | None
    """The limit of that cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session in a list."""

    agent: str
    """The agent that answers in it."""
    name: str
    """The name of the session."""
    position: int
    """Number of events in the session's log."""
    messages: int
    """Number of messages ever added, including undone ones."""
    updated: float
    """Time of the last change, in seconds since the epoch."""
    active: float
    """The time by which `order=recent` sorts, in seconds since the epoch. On PostgreSQL it is the
    beginning of the last turn, with files the last write."""
    parent: str | None
    """The session that this one was forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    sessions: list[SessionInfo]
    """The sessions by name, or the last active ones first."""
    next: str | None
    """Send it as `after` to get the next page. Null on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """The current state of a session."""

    agent: str
    """The agent that answers in the session."""
    name: str
    """The name of the session."""
    position: int
    """Number of events in the session's log."""
    messages: int
    """Number of messages, including hidden ones but not undone ones."""
    visible: int
    """Number of messages that the model sees, whole or in part."""
    model: str
    """The model in use."""
    running: bool
    """Whether a turn is running in the session on this server."""
    waiting: int
    """Number of messages that wait for their turn."""
    failure_reason: str | None
    """Why the newest message has no answer: its turn failed permanently, or the provider rejected
    the content (`rejected: …`). Null otherwise. `resume` retries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallInfo:
    """A tool call of the model."""

    id: str
    """The provider's id of the call. The result has the same id."""
    name: str
    """The name of the tool."""
    arguments: str
    """The arguments as JSON, exactly as the model wrote them. They are not always valid JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultInfo:
    """The result of a tool."""

    call_id: str
    """The id of the call that this result answers."""
    text: str
    """The whole text of the result."""
    is_error: bool
    """Whether the tool failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInfo:
    """An image or another file in a message."""

    type: str
    """The kind of content for the model."""
    mime: str | None
    """The media type, if it is known."""
    url: str | None
    """The address of the file. Null if the content itself was sent."""
    handle: str
    """The handle: the message and the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInfo:
    """A full message, regardless of what the model currently sees of it."""

    position: int
    """The position in the log."""
    handle: str
    """The handle for `why` and `recall`."""
    at: float
    """When the message was added, in seconds since the epoch."""
    role: str
    """`user`, `assistant`, `tool` or `system`."""
    text: str
    """The whole text, except for tool results, which are in `tool_results`. Content above two
    million characters is left out, and a note at the end says how to read it."""
    tool_calls: list[ToolCallInfo]
    """The tool calls of the model."""
    tool_results: list[ToolResultInfo]
    """The results of tools."""
    media: list[MediaInfo]
    """Images and other files."""
    key: str | None
    """The idempotency key, if the message has one."""
    undone: bool = False
    """Whether the message was undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    messages: list[MessageInfo]
    """The messages in the order of the log."""
    next: int | None
    """Send it as `after` to get later messages, or as `before` if you asked for earlier ones. Null
    on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAccepted:
    """The server has queued the message and will answer it."""

    key: str
    """The message's idempotency key. If you send the message again with this key, it is not added
    twice."""
    duplicate: bool
    """Whether a message with this key already existed, so that nothing was added."""
    after: int
    """The position in the log before the answer. Later events belong to the answer."""
    events_url: str
    """The address of these events, as server-sent events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsageInfo:
    """How the tokens of the next call would be used."""

    text: str
    """The report as text for people."""
    line: str
    """How full the window is, in one line."""
    ledger: Mapping[str, Any]
    """Every figure by name: `limit`, `used`, `free`, `sections`, `hidden`, `cost`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledText:
    handle: str
    """The requested handle."""
    text: str
    """The original text, unchanged."""
    next: str | None = None
    """If the text is longer, append this to the path `recall/` to read on. Null at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResultsText:
    query: str
    """The search query."""
    text: str
    """The passages found with their handles, the best first, or a sentence that nothing was
    found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction hid."""

    before: int
    """Number of tokens that the next call would have had before."""
    after: int
    """Number of tokens that the next call has now."""
    hidden: list[HiddenTotals]
    """What was hidden, by kind. Nothing is lost: `recall` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    """What an undo removed."""

    to: int
    """The position whose state is restored."""
    messages: int
    """Number of undone messages."""
    text: str
    """The text of the first user message among them. Empty if nothing was undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseResult:
    """What is erased, including earlier erasures."""

    handles: list[str]
    """The erased handles, message by message, and then answers of the recall tools that may have
    repeated them."""
    forks: list[str]
    """Sessions of this agent that were forked from this one. They have their own copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStatus:
    """The erasure of a user or a tenant, and what it has erased."""

    id: str
    """The id of the erasure. You can read its state for a day after its end."""
    state: str
    """`running`, then `done`, `incomplete` (some logs are damaged) or `failed`."""
    to_do: int
    """Number of sessions that were found and are not yet erased."""
    sessions: int
    """Number of deleted sessions."""
    messages: int
    """Number of messages erased in sessions that remain: the user's messages and their answers."""
    waiting: int
    """Number of messages erased while they waited for their turn."""
    unreadable: list[str]
    """Sessions `AGENT/NAME` that were not searched because their logs are damaged. Delete them."""
    configured_schedules: list[str]
    """Schedules `AGENT/NAME` of agent.yaml that write to a deleted session. They create it again
    until you remove them from the file."""
    reason: str
    """Why it failed. Empty if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecordInfo:
    """One erasure, without any of the content."""

    at: float
    """When the erasure began, in seconds since the epoch."""
    by: str
    """The name of the API key, `retention` or `command line`."""
    kind: str
    """`message`, `session`, `user` or `tenant`."""
    agent: str
    """The agent. Empty for a user and a tenant."""
    target: str
    """A keyed digest of the user's or the session's id. Search with `user` or `session` to find
    it."""
    outcome: str
    """`running`, `done`, `incomplete` or `failed`."""
    sessions: int
    """Number of deleted sessions."""
    messages: int
    """Number of messages erased in sessions that remain."""
    waiting: int
    """Number of messages erased while they waited for their turn."""
    duration_s: float
    """Duration in seconds."""
    id: str
    """The id of the erasure of a user or a tenant. Empty for a message and a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecordList:
    erasures: list[ErasureRecordInfo]
    """The erasures, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """A session that was created."""

    agent: str
    """The agent that answers in the session."""
    name: str
    """The name of the session."""
    position: int
    """Number of events in the session's log."""


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
    """The name of the session."""
    reason: str
    """The last error."""
    messages: int
    """Number of messages without an answer."""
    at: float
    """When the last retry failed, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSessionList:
    sessions: list[DeadLetterSessionInfo]
    """The sessions, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRetryResult:
    sessions: int
    """Number of sessions whose dead letters are retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthStatus:
    status: str
    """`ok`, or the reason why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblemInfo:
    """One error in the body of a request."""

    field: str
    """The path of the field."""
    detail: str
    """What is wrong with the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why a request failed, and what to do about it (RFC 9457)."""

    type: str
    """The kind of problem, such as `urn:trimtab:problem:not-found`."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What happened."""
    help: str
    """What to do next."""
    errors: list[FieldProblemInfo] | None = None
    """If the body is invalid: the problems of each field."""
    waiting: int | None = None
    """If the queue is full: the number of messages in it."""
    instance: str | None = None
    """If the server failed: the id of this error in its log."""


AnyResponse = object
"""Any of the above."""


def encode_json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8. Unpaired surrogates, which UTF-8 cannot encode, stay escaped."""
    plain: Any = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":")).encode()
