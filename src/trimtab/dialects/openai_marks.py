"""Explicit cache breakpoints, which OpenAI takes on content parts from GPT-5.6 on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab.dialects.shapes import as_dict, as_list

_MODEL = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\d.])")
_KEY = "prompt_cache_breakpoint"
_BREAKPOINT: Mapping[str, Any] = {"mode": "explicit"}
_CHAT_PARTS = ("text", "image_url", "input_audio", "file")
_ITEM_PARTS = ("input_text", "input_image", "input_file")
_Bodies = list[Mapping[str, Any]]
_Marked = Callable[[Mapping[str, Any]], dict[str, Any] | None]


def has_breakpoints(model: str) -> bool:
    """Whether a model is known to take them. Others cache by themselves, or refuse the field."""
    found = _MODEL.match(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= (5, 6)


def mark_messages(
    messages: Sequence[Mapping[str, Any]], head: int, marks: Sequence[int]
) -> _Bodies:
    """Chat messages with breakpoints on copies; `head` of them are the system prompt."""
    return _mark(messages, head, marks, _marked_message)


def mark_items(items: Sequence[Mapping[str, Any]], head: int, marks: Sequence[int]) -> _Bodies:
    """Responses items with breakpoints on copies; `head` of them are the system prompt."""
    return _mark(items, head, marks, _marked_item)


def _mark(
    bodies: Sequence[Mapping[str, Any]], head: int, marks: Sequence[int], marked: _Marked
) -> _Bodies:
    out = list(bodies)
    for mark in marks:
        if not -1 <= mark < len(out) - head:
            continue
        for index in range(head + mark, -1, -1):
            # A mark on what cannot carry one moves to the nearest part before it that can.
            if (copy := marked(bodies[index])) is not None:
                out[index] = copy
                break
    return out


def _marked_message(message: Mapping[str, Any]) -> dict[str, Any] | None:
    return _marked(message, "content", "text", _CHAT_PARTS)


def _marked_item(item: Mapping[str, Any]) -> dict[str, Any] | None:
    if item.get("type") == "function_call_output":
        return _marked(item, "output", "input_text", _ITEM_PARTS)
    if item.get("role") in ("user", "system", "developer"):
        return _marked(item, "content", "input_text", _ITEM_PARTS)
    return None


def _marked(
    body: Mapping[str, Any], key: str, text: str, parts: tuple[str, ...]
) -> dict[str, Any] | None:
    content = body.get(key)
    if isinstance(content, str) and content:
        return {**body, key: [{"type": text, "text": content, _KEY: _BREAKPOINT}]}
    listed = as_list(content)
    last = as_dict(listed[-1]) if listed else None
    if listed is None or last is None or last.get("type") not in parts:
        return None
    return {**body, key: [*listed[:-1], {_KEY: _BREAKPOINT, **last}]}
