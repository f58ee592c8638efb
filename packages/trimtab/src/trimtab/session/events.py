"""The events of a turn, and their form as JSON. `type` is the name of an event in JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from trimtab.engine.log.event import SummaryAttempt, Usage
from trimtab.engine.log.message import Message, Text, ToolCall
from trimtab.errors import FailureKind

COMPACTED_NOTICE = "Context was compacted and truncated to fit token limits."
"""What the user reads after a recovery."""
CONTENT_LEFT_OUT_NOTICE = (
    "The provider no longer accepts a part of this conversation; that part is left out now."
)
"""What the user reads if the rejected content was not the newest message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A turn is about to be claimed. `TurnFinished` or `TurnFailed` follows."""

    type: ClassVar = "turn.started"
    session: str
    """The session's id."""
    model: str
    """The model's name, as the provider knows it."""
    dialect: str
    """The wire format of its requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEdited:
    """Something is hidden or cut from now on. The edit is in the store."""

    type: ClassVar = "context.edited"
    op: str
    """The kind of edit: `truncate`, `mask`, `summarise` or `drop`."""
    count: int
    """How many parts it hides, or messages for `summarise` and `drop`."""
    tokens: int
    """Estimated tokens that these would need in addition if they were shown in full."""
    cause: Literal["policy", "recovery"]
    """`recovery` if the provider had rejected a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStarted:
    """A model call begins; it is in the store. `ModelCallFinished` or `TurnFailed` follows."""

    type: ClassVar = "model_call.started"
    model: str
    """The model's name, as the provider knows it."""
    dialect: str
    """The wire format of its request."""
    messages: int
    """Messages that the model sees, without summary and notice."""
    tokens: int
    """Estimated tokens of the whole prompt."""
    head: int
    """Tokens of these for the system prompt and tool definitions."""
    front: int
    """Tokens of these for the summary and the notice of what was dropped."""
    room: int
    """Tokens that the limit leaves for the prompt: the limit minus the output."""
    max_output: int
    """Tokens of output that the call requests."""
    near: bool
    """Whether this call has reached 80 % of `room`, and the previous call had not."""

    @property
    def room_share(self) -> float:
        """The share of `room` that the prompt uses."""
        return self.tokens / self.room if self.room > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFinished:
    """The model has answered and the reply is in the store, or the call has failed."""

    type: ClassVar = "model_call.finished"
    model: str
    """The model that was called."""
    outcome: str
    """`ok`, or the kind of failure: `overflow`, `rate_limit`, …"""
    seconds: float
    """Seconds from the request to the end of the reply, including the provider's retries."""
    usage: Usage | None = None
    """What the provider reported for this call; None if it reported nothing."""
    cost: float | None = None
    """Cost in US dollars at list prices; None if they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the reply, as it streams in."""

    type: ClassVar = "message.delta"
    kind: str
    """`text` or `thinking`."""
    text: str
    """Append it to the previous pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRetried:
    """The call is made again, also if `with_retries` does it. Discard the pieces of the reply so
    far."""

    type: ClassVar = "model_call.retried"
    kind: FailureKind
    """The kind of the failure: `overflow`, `rate_limit`, …"""
    reason: str
    """The provider's error text."""
    wait_s: float = 0.0
    """Seconds until the call is made again."""
    limit: int | None = None
    """Tokens that the provider accepts, if fewer than assumed; otherwise None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantReplied:
    """The model's whole reply. It is in the store."""

    type: ClassVar = "message"
    message: Message
    """The reply as a message."""
    usage: Usage | None
    """The usage that the provider reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool was started. The start is in the store."""

    type: ClassVar = "tool.started"
    call: ToolCall
    """The model's call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool has finished. Its result is in the store."""

    type: ClassVar = "tool.finished"
    call: ToolCall
    """The model's call."""
    text: str
    """The text of its result."""
    is_error: bool
    """Whether it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserNotice:
    """Something that the user should know."""

    type: ClassVar = "notice"
    text: str
    """The text, for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFinished:
    """A summary was requested from a model.

    The request, and the summary if it is used, are in the store.
    """

    type: ClassVar = "summary.finished"
    attempt: SummaryAttempt
    """The outcome, with its sizes."""
    messages: int
    """Messages that the model sees now."""
    tokens: int
    """Estimated tokens that the model sees now, including the head."""
    summaries_so_far: int
    """Number of summaries made in this session so far."""
    seconds: float = 0.0
    """Seconds that all its calls took together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """The turn is over."""

    type: ClassVar = "turn.finished"
    reason: Literal["done", "iterations", "stopped", "rejected", "cost_ceiling"]
    """`done`: the model has finished. `iterations`: it called tools more often than allowed.
    `stopped`: the turn was stopped before the model had finished. `rejected`: the provider rejected
    the content; `run_turn` raises then, and only a server ends a turn so. `cost_ceiling`: the next
    call might have exceeded a cost ceiling."""
    calls: int
    """Model calls made in this turn. It is 0 if the message had its reply already."""
    message: Message | None = None
    """The model's last reply in this turn, or the reply of another turn that had answered the
    message; None if there is none."""
    usage: Usage | None = None
    """Usage of all model calls of this turn together, without summaries; None if it is not known
    for one of them."""
    cost: float | None = None
    """Their cost in US dollars at list prices; None if it is not known for one of them."""
    cut_off_tools: int = 0
    """Tool calls that were cut off, or not started, because the turn was stopped."""
    cost_ceiling: str | None = None
    """The ceiling that was reached: `session`, `tenant_per_day` or `day`; otherwise None."""

    @property
    def text(self) -> str:
        """The answer: the text of `message`; empty if there is none."""
        return "" if self.message is None else self.message.text


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """An error ended the turn, and it is raised. Stored events stay."""

    type: ClassVar = "turn.failed"
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
"""Any of the values that `on_event` hears."""


def turn_event_to_json(event: TurnEvent) -> dict[str, Any]:
    """Convert an event to plain JSON values.

    `trimtab chat --json`, the streams of the HTTP API and the processes of a fleet all use it.
    """
    match event:
        case AssistantReplied(message=message):
            calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.calls]
            data = {"role": message.role, "text": join_text_parts(message), "tool_calls": calls}
        case ToolStarted(call=call):
            data = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        case ToolFinished(call=call):
            result = {"text": event.text, "is_error": event.is_error}
            data = {"call_id": call.id, "name": call.name, **result}
        case SummaryFinished():
            data = {**summary_attempt_to_json(event.attempt), "seconds": event.seconds}
        case TurnFinished():
            data = asdict(replace(event, message=None))
            data["text"] = event.text
            del data["message"]  # it was an event of its own
        case _:
            data = asdict(event)
    return {"type": event.type, **data}


def summary_attempt_to_json(attempt: SummaryAttempt) -> dict[str, Any]:
    """Return what readers of events learn about a summary."""
    sizes = {"tokens": attempt.tokens, "replaced": attempt.replaced, "patched": attempt.patched}
    return {"outcome": attempt.outcome, "reason": attempt.why, **sizes}


def join_text_parts(message: Message) -> str:
    """Return all text of a message, joined like its pieces while it was written."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))
