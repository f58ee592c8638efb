"""Whether two messages say the same, whatever their wire format kept beside."""

from __future__ import annotations

from trimtab.core.message import Media, Message, Opaque, Part, Text, ToolCall, ToolResult


def same(one: Message, other: Message) -> bool:
    """True where role, texts, calls, results and media agree; opaque blocks and extras may not."""
    if one.role != other.role:
        return False
    mine, theirs = _told(one), _told(other)
    return len(mine) == len(theirs) and all(map(_same, mine, theirs))


def _told(message: Message) -> list[Part]:
    return [p for p in message.parts if not isinstance(p, Opaque) and p != Text(text="")]


def _same(one: Part, other: Part) -> bool:
    match one, other:
        case Text(), Text():
            return one.text == other.text
        case ToolCall(), ToolCall():
            same_call = one.id == other.id and one.name == other.name
            return same_call and one.arguments == other.arguments
        case ToolResult(), ToolResult():
            return one.call_id == other.call_id and one.text == other.text
        case Media(), Media():
            return one.kind == other.kind and one.data == other.data and one.url == other.url
        case _:
            return False
