"""A part of a message in words: its kind, its name and its text."""

from __future__ import annotations

from typing import NamedTuple

from trimtab.engine.log.event import dump_canonical_json
from trimtab.engine.log.message import Media, OpaqueBlock, Part, Text, ToolCall, ToolResult


class PartDescription(NamedTuple):
    """A part in words."""

    kind: str
    name: str
    text: str


def describe_part(part: Part) -> PartDescription:
    """Return the kind of a part, its name and its text."""
    match part:
        case Text():
            return PartDescription("text", "", part.text)
        case ToolCall():
            return PartDescription("call", part.name, part.arguments)
        case ToolResult():
            return PartDescription("result", "", part.text)
        case Media():
            return PartDescription("media", part.mime or part.kind, part.data or part.url or "")
        case OpaqueBlock():
            kind = str(part.data.get("type", "block"))
            thinking = part.data.get("thinking")
            text = thinking if isinstance(thinking, str) else dump_canonical_json(dict(part.data))
            return PartDescription("block", kind, text)
