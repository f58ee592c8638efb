"""What an agent asks beside its conversation: a summary of it, a title for it.

Agents send such requests to the same address and with the same key. A model answers them in words,
and its next tool call comes when the conversation goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trimtab.testing.request_counter import list_array_objects

JsonObject = Mapping[str, Any]
_QUOTED_CHARS = 200
_ASKS_FOR_SUMMARY = re.compile(
    r"\b(?:create|write|produce|provide|generate|updat\w+)\b[^.!?]{0,120}\bsummary\b"
    r"|\bsummari[sz]ation (?:agent|assistant)\b"
    r"|\bto summari[sz]e\b|\bsummari[sz]e (?:the|this|our)\b",
    re.IGNORECASE,
)
_OF_A_CONVERSATION = re.compile(
    r"\b(?:conversation|context|checkpoint|handoff|history|session)\b", re.IGNORECASE
)


def wants_summary(request: JsonObject) -> bool:
    """Return whether the request ends with an instruction to summarise the conversation."""
    newest = _read_newest_instruction(request)
    return bool(_ASKS_FOR_SUMMARY.search(newest) and _OF_A_CONVERSATION.search(newest))


def write_summary(request: JsonObject) -> str:
    """Return a summary: how long the conversation is, and how its first message begins."""
    items = _list_items(request)
    first = next((text for item in items if (text := _read_text(item))), "")
    return (
        f"The conversation has {len(items)} messages. It began with: "
        f"{first[:_QUOTED_CHARS].strip()}\nNext: go on where it stopped."
    )


def _read_newest_instruction(request: JsonObject) -> str:
    """Return the text of the last message if the user wrote it, and nothing for a result."""
    items = _list_items(request)
    if not items or items[-1].get("role") != "user":
        return ""
    return _read_text(items[-1])


def _list_items(request: JsonObject) -> list[dict[str, Any]]:
    history = request.get("messages", request.get("input"))
    if isinstance(history, str):
        return [{"role": "user", "content": history}]
    return list_array_objects(history)


def _read_text(item: JsonObject) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in list_array_objects(content) if "text" in part)
