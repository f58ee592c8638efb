"""What a request is made of, by who said it and whether it is whole."""

from __future__ import annotations

from trimtab.core.message import ToolResult
from trimtab.core.window import Window

SECTIONS = ("system", "user", "assistant", "tool results", "placeholders", "summary")
"""From the bottom of a stack to its top."""


def sections_of(window: Window) -> dict[str, int]:
    """Tokens by section; tool calls are the assistant's, truncated results are results."""
    out: dict[str, int] = dict.fromkeys(SECTIONS, 0)
    out["system"] = window.settings.head.tokens
    out["summary"] = window.front.tokens
    for group in window.visible.values():
        for entry in group.entries():
            role = entry.message.role
            for part in range(len(entry.sizes)):
                edit = entry.edits.get(part)
                content = entry.message.parts[part] if entry.message.parts else None
                if edit is not None and edit.op == "mask":
                    name = "placeholders"
                elif isinstance(content, ToolResult):
                    name = "tool results"
                else:
                    name = role if role in out else "user"
                out[name] += entry.shown(part).tokens
    return out
