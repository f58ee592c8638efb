"""How large a message is, for the limits of a page and of a turn."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.engine.log.message import (
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
)


def count_message_chars(message: Message) -> int:
    """Return the number of characters of a message's content, including files."""
    return _count_part_chars(message.parts)


def _count_part_chars(parts: Iterable[Part]) -> int:
    chars = 0
    for part in parts:
        match part:
            case Text():
                chars += len(part.text)
            case ToolCall():
                chars += len(part.arguments)
            case ToolResult():
                chars += _count_part_chars(part.content)
            case Media():
                chars += len(part.data or "")
            case OpaqueBlock():
                pass
    return chars
