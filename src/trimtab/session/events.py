"""The events of a turn, for `on_event`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trimtab.log.event import SummaryAttempt, Usage
from trimtab.log.message import Message, ToolCall

COMPACTED_NOTICE = "Context was compacted and truncated to fit token limits."
"""What the user is told after a recovery."""
CONTENT_LEFT_OUT_NOTICE = (
    "The provider no longer takes a part of what was said; it is left out from now on."
)
"""What the user is told where that was not the newest message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A turn is about to be claimed; `TurnFinished` or `TurnFailed` follows."""

    session: str
    """The session's id."""
    model: str
    """The model's name, as the provider knows it."""
    dialect: str
    """The wire format that it is asked in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEdited:
    """Something is hidden, or cut, from now on; that it is, is in the store."""

    op: str
    """The kind of edit: `truncate`, `mask`, `summarise` or `drop`."""
    count: int
    """Parts that it hides, or messages for `summarise` and `drop`."""
    tokens: int
    """Estimated, that these would take more if they were shown whole."""
    cause: Literal["policy", "recovery"]
    """`recovery` where the provider had refused a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStarted:
    """The model is asked; the call is in the store. `ModelCallFinished` or `TurnFailed` follows."""

    model: str
    """The model's name, as the provider knows it."""
    dialect: str
    """The wire format that it is asked in."""
    messages: int
    """Messages that the model sees, without summary and notice."""
    tokens: int
    """Of the whole prompt, estimated."""
    head: int
    """Of these, system prompt and tool definitions."""
    front: int
    """Of these, the summary and the notice of what was dropped."""
    room: int
    """Tokens that the limit leaves for a prompt: the limit without the output."""
    max_output: int
    """Tokens of output that are asked for."""
    near: bool
    """Whether this call has reached 80 % of the room, and the one before it had not."""

    @property
    def room_share(self) -> float:
        """Of the room, that the prompt takes."""
        return self.tokens / self.room if self.room > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFinished:
    """The model has answered, and the reply is in the store; or the call has failed."""

    model: str
    """The model that was asked."""
    outcome: str
    """`ok`, or the kind of failure: `overflow`, `rate_limit`, …"""
    seconds: float
    """From the request to the end of the reply, retries of the provider included."""
    usage: Usage | None = None
    """What the provider reported for this call; None where it reported nothing."""
    cost: float | None = None
    """US dollars of it, at list prices; None where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the reply, as it streams in."""

    kind: str
    """`text` or `thinking`."""
    text: str
    """To be appended to what came before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRetried:
    """The call is made again: pieces of a reply that broke off are void."""

    reason: str
    """The provider's words."""
    limit: int | None = None
    """Tokens that the provider takes, where it takes fewer than was assumed; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantReplied:
    """The model's whole reply; it is in the store."""

    message: Message
    """What it said."""
    usage: Usage | None
    """What the provider reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool was started; that it was is in the store."""

    call: ToolCall
    """What the model asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool's result; it is in the store."""

    call: ToolCall
    """What the model asked for."""
    text: str
    """What it gave."""
    is_error: bool
    """Whether it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserNotice:
    """Something that the user should know."""

    text: str
    """In the user's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFinished:
    """A model was asked for a summary; that, and the summary if it stands, is in the store."""

    attempt: SummaryAttempt
    """What became of it, with its sizes."""
    messages: int
    """Messages that the model sees now."""
    tokens: int
    """Tokens of what it sees now, estimated, head included."""
    summaries_so_far: int
    """Summaries made in this session so far."""
    seconds: float = 0.0
    """That it took, all calls together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """The turn is over."""

    reason: Literal["done", "iterations", "stopped", "rejected", "cost_ceiling"]
    """`iterations` where the model went on calling tools for longer than it may, `stopped` where
    it was to end before the model had said its last word, `rejected` where its provider did not
    take what was said: that is raised, and only who serves a session ends a turn with it.
    `cost_ceiling` where the next call might have cost more than may be spent."""
    calls: int
    """Model calls made in this turn."""
    cut_off_tools: int = 0
    """Tool calls that were cut off, or not begun, because the turn was stopped."""
    cost_ceiling: str | None = None
    """The ceiling that was reached: `session`, `tenant_per_day` or `day`; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """The turn was cut off by an error, which is raised. What is in the store stays there."""

    reason: str
    """`cancelled`, `cannot_fit`, `stale`, `store`, the kind of a provider's failure, or `error`."""
    error: str
    """The name of the error's class."""


TurnEvent = (
    TurnStarted
    | ContextEdited
    | ModelCallStarted
    | TextDelta
    | ModelCallRetried
    | ModelCallFinished
    | AssistantReplied
    | ToolStarted
    | ToolFinished
    | UserNotice
    | SummaryFinished
    | TurnFinished
    | TurnFailed
)

_JSON_TYPES: Mapping[type, str] = {
    TurnStarted: "turn.started",
    ContextEdited: "context.edited",
    ModelCallStarted: "model_call.started",
    ModelCallFinished: "model_call.finished",
}
"""The `type` of events whose fields are all written."""


def turn_event_to_json(event: TurnEvent) -> dict[str, Any]:
    """Convert an event to plain JSON values, named as in the HTTP API's streams."""
    match event:
        case TextDelta():
            return {"type": "message.delta", "kind": event.kind, "text": event.text}
        case ModelCallRetried():
            return {"type": "model_call.retried", "reason": event.reason, "limit": event.limit}
        case AssistantReplied():
            texts = "".join(getattr(part, "text", "") for part in event.message.parts)
            return {"type": "message", "text": texts}
        case ToolStarted():
            call = event.call
            data = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
            return {"type": "tool.started", **data}
        case ToolFinished():
            call = event.call
            data = {"call_id": call.id, "name": call.name, "text": event.text}
            return {"type": "tool.result", **data, "is_error": event.is_error}
        case UserNotice():
            return {"type": "notice", "text": event.text}
        case SummaryFinished():
            tried = event.attempt
            sizes = {"tokens": tried.tokens, "replaced": tried.replaced, "patched": tried.patched}
            return {
                "type": "summary.finished",
                "outcome": tried.outcome,
                "reason": tried.why,
                **sizes,
            }
        case TurnFinished():
            ended = {"type": "turn.finished", "reason": event.reason, "calls": event.calls}
            reached = {"ceiling": event.cost_ceiling} if event.cost_ceiling is not None else {}
            return {**ended, **reached}
        case TurnFailed():
            return {"type": "turn.failed", "reason": event.reason, "error": event.error}
        case TurnStarted() | ContextEdited() | ModelCallStarted() | ModelCallFinished():
            return {"type": _JSON_TYPES[type(event)], **asdict(event)}
