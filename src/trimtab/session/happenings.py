"""What a turn tells whoever watches it, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trimtab.core.event import Usage
from trimtab.core.message import Message, ToolCall

COMPACTED = "Context was compacted and truncated to fit token limits."
"""What the user is told after a recovery."""


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
class Ended:
    """The turn is over."""

    why: Literal["done", "iterations"]
    """`iterations` where the model went on calling tools for longer than it may."""
    calls: int
    """Model calls made in this turn."""


Happening = Piece | Restarted | Replied | ToolBegan | ToolEnded | Notice | Ended


def to_json(happening: Happening) -> dict[str, Any]:
    """A happening as plain values, for those who stream turns on."""
    match happening:
        case Piece():
            return {"type": happening.kind, "text": happening.text}
        case Restarted():
            return {"type": "restarted", "why": happening.why}
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
        case Ended():
            return {"type": "end", "why": happening.why, "calls": happening.calls}
