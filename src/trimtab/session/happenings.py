"""What a turn tells whoever watches it, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trimtab.core.event import Attempt, Usage
from trimtab.core.message import Message, ToolCall

COMPACTED = "Context was compacted and truncated to fit token limits."
"""What the user is told after a recovery."""
LEFT_OUT = "The provider no longer takes a part of what was said; it is left out from now on."
"""What the user is told where that was not the newest message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegan:
    """A turn is about to be claimed; `Ended` or `BrokeOff` follows."""

    session: str
    """The session's id."""
    model: str
    """The model's name, as the provider knows it."""
    dialect: str
    """The wire format that it is asked in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
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
class CallBegan:
    """The model is asked; the call is in the store. `CallEnded` or `BrokeOff` follows."""

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
    def share(self) -> float:
        """Of the room, that the prompt takes."""
        return self.tokens / self.room if self.room > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
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
class Piece:
    """A piece of the reply, as it streams in."""

    kind: str
    """`text` or `thinking`."""
    text: str
    """To be appended to what came before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The call is made again: pieces of a reply that broke off are void."""

    why: str
    """The provider's words."""
    limit: int | None = None
    """Tokens that the provider takes, where it takes fewer than was assumed; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The model's whole reply; it is in the store."""

    message: Message
    """What it said."""
    usage: Usage | None
    """What the provider reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBegan:
    """A tool was started; that it was is in the store."""

    call: ToolCall
    """What the model asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool's result; it is in the store."""

    call: ToolCall
    """What the model asked for."""
    text: str
    """What it gave."""
    is_error: bool
    """Whether it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should know."""

    text: str
    """In the user's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised:
    """A model was asked for a summary; that, and the summary if it stands, is in the store."""

    attempt: Attempt
    """What became of it, with its sizes."""
    messages: int
    """Messages that the model sees now."""
    tokens: int
    """Tokens of what it sees now, estimated, head included."""
    made: int
    """Summaries made in this session so far."""
    seconds: float = 0.0
    """That it took, all calls together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The turn is over."""

    why: Literal["done", "iterations", "stopped", "rejected"]
    """`iterations` where the model went on calling tools for longer than it may, `stopped` where
    it was to end before the model had said its last word, `rejected` where its provider did not
    take what was said: that is raised, and only who serves a session ends a turn with it."""
    calls: int
    """Model calls made in this turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokeOff:
    """The turn was cut off by an error, which is raised. What is in the store stays there."""

    why: str
    """`cancelled`, `cannot_fit`, `stale`, `store`, the kind of a provider's failure, or `error`."""
    error: str
    """The name of the error's class."""


Happening = (
    TurnBegan
    | Edited
    | CallBegan
    | Piece
    | Restarted
    | CallEnded
    | Replied
    | ToolBegan
    | ToolEnded
    | Notice
    | Summarised
    | Ended
    | BrokeOff
)

_ACCOUNTS: Mapping[type, str] = {
    TurnBegan: "turn",
    Edited: "edit",
    CallBegan: "call",
    CallEnded: "called",
    BrokeOff: "broke_off",
}
"""What is told as it is, by the name that it is told under."""


def to_json(happening: Happening) -> dict[str, Any]:
    """A happening as plain values, for those who stream turns on."""
    match happening:
        case Piece():
            return {"type": happening.kind, "text": happening.text}
        case Restarted():
            return {"type": "restarted", "why": happening.why, "limit": happening.limit}
        case Replied():
            texts = "".join(getattr(part, "text", "") for part in happening.message.parts)
            return {"type": "reply", "text": texts}
        case ToolBegan():
            call = happening.call
            return {"type": "tool", "id": call.id, "name": call.name, "arguments": call.arguments}
        case ToolEnded():
            call = happening.call
            told = {"id": call.id, "name": call.name, "text": happening.text}
            return {"type": "result", **told, "error": happening.is_error}
        case Notice():
            return {"type": "notice", "text": happening.text}
        case Summarised():
            tried = happening.attempt
            sizes = {"tokens": tried.tokens, "replaced": tried.replaced, "patched": tried.patched}
            return {"type": "summary", "outcome": tried.outcome, "why": tried.why, **sizes}
        case Ended():
            return {"type": "end", "why": happening.why, "calls": happening.calls}
        case TurnBegan() | Edited() | CallBegan() | CallEnded() | BrokeOff():
            return {"type": _ACCOUNTS[type(happening)], **asdict(happening)}
