"""What a caller gets, as plain values; the OpenAPI document is made from these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from trimtab.session.audit import HiddenTotals, VisibilityReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """An agent that is served."""

    name: str
    """What it is called in addresses."""
    model: str
    """Who answers."""
    policy: str
    """What decides what the model sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentList:
    agents: list[AgentInfo]
    """Those that you may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session in a list."""

    agent: str
    """Who answers in it."""
    name: str
    """What it is called."""
    position: int
    """Events in its log."""
    messages: int
    """Messages ever said in it; undone ones count."""
    updated: float
    """When something last happened, in seconds since the epoch."""
    parent: str | None
    """The session that it was forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    sessions: list[SessionInfo]
    """In the order of their names."""
    next: str | None
    """Give it as `after` for the next page; null on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session as it stands."""

    agent: str
    """Who answers in it."""
    name: str
    """What it is called."""
    position: int
    """Events in its log."""
    messages: int
    """Messages in force, hidden ones included."""
    visible: int
    """Messages that the model sees, whole or in part."""
    model: str
    """Who answers now."""
    running: bool
    """Whether this server is answering in it now."""
    waiting: int
    """Messages that wait for their turn, 100 at most."""
    failed: str | None
    """Why the newest message has no answer: its turn was given up, or the provider `rejected` what
    was said; null where neither was. `resume` tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallInfo:
    """A tool that the model asked for."""

    id: str
    """The provider's id; its result names it."""
    name: str
    """The tool."""
    arguments: str
    """JSON as the model wrote it; not always valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultInfo:
    """What a tool gave."""

    call: str
    """The id of the call that it answers."""
    text: str
    """All text of it."""
    error: bool
    """Whether it failed."""


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
    """A message as it was said, whatever the model sees of it now."""

    position: int
    """Where it stands in the log."""
    handle: str
    """What `why` and `recall` know it by."""
    at: float
    """When it was said, in seconds since the epoch."""
    role: str
    """`user`, `assistant`, `tool` or `system`."""
    text: str
    """All text of it; that of tool results is in `results`."""
    calls: list[ToolCallInfo]
    """Tools that the model asked for."""
    results: list[ToolResultInfo]
    """What tools gave."""
    media: list[MediaInfo]
    """Pictures and other files."""
    key: str | None
    """The sender's own, where there was one."""
    undone: bool = False
    """Whether an undo has taken it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    messages: list[MessageInfo]
    """In the order they were said."""
    next: int | None
    """Give it as `after` for what follows, or as `before` for what precedes if you asked for that;
    null where there is nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAccepted:
    """The message is kept and will be answered."""

    key: str
    """The message's key: sent again with it, it is not said again."""
    known: bool
    """Whether the key was known already, and nothing was added."""
    after: int
    """The log's position before the answer: events behind it are news."""
    events: str
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
    """What was asked for."""
    text: str
    """The text exactly as it was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResultText:
    query: str
    """What was looked for."""
    text: str
    """Passages with their handles, the best first; or that nothing was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    before: int
    """Tokens of the next call as it would have been."""
    after: int
    """Tokens of it now."""
    hidden: list[HiddenTotals]
    """What was hidden, by kind. Nothing is lost: `recall` gives it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    to: int
    """The position whose state holds again."""
    messages: int
    """Messages that were taken back."""
    text: str
    """What the user had said first among them; empty where nothing was taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseResult:
    """What is destroyed, also where it was before."""

    handles: list[str]
    """What was named, message by message; then answers of the recall tools that may have repeated
    it."""
    forks: list[str]
    """Sessions of this agent that were forked from this one: they have copies of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """A session that is there now."""

    agent: str
    """Who answers in it."""
    name: str
    """What it is called."""
    position: int
    """Events in its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    done: bool
    """Whether there was anything to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSessionInfo:
    """A session whose turn was given up."""

    agent: str
    """Who should have answered."""
    name: str
    """The session."""
    why: str
    """What went wrong the last time."""
    letters: int
    """Messages that wait."""
    at: float
    """When it was given up, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSessionList:
    dead: list[DeadLetterSessionInfo]
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviveResult:
    sessions: int
    """In which something is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthStatus:
    status: str
    """`ok`, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblemInfo:
    """One thing that is wrong with a body."""

    field: str
    """Which field, by its path."""
    why: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why something could not be done, and what to do about it (RFC 9457)."""

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
    fields: list[FieldProblemInfo] | None = None
    """Of a body that does not fit: what is wrong with which field."""
    waiting: int | None = None
    """Where too much waits: how many messages."""
    instance: str | None = None
    """Of a fault: what the server's log knows it by."""


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
