"""Cache marks that a caller has set itself, in messages, tools or the system prompt.

A program that sets marks moves them from call to call. The log keeps a message as it came first, so
the marks of each call are recorded with the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list, list_or_none
from trimtab.engine.log.event import CallerMark
from trimtab.engine.log.message import Message, OpaqueBlock, Part, ToolResult
from trimtab.engine.prompt.render import IncrementalRenderer, PromptBlock, render_entry_message
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window

MARK_KEYS = ("cache_control", "prompt_cache_breakpoint")
"""The keys by which Anthropic and OpenAI mark the end of a prefix."""
_LIST_KEYS = ("content", "output")


def has_marks(item: Any) -> bool:
    """Whether an item of a caller's list has a mark: a dict, a `Message` or a LangChain message."""
    if isinstance(item, Message):
        return _select_marks(item.extra) != {} or any(map(_part_has_marks, item.parts))
    if isinstance(item, Mapping):
        return _body_has_marks(cast("Mapping[str, Any]", item))
    content: Any = getattr(item, "content", None)
    return isinstance(content, list) and _body_has_marks({"content": content})


def _part_has_marks(part: Part) -> bool:
    if isinstance(part, OpaqueBlock):
        return _body_has_marks(part.data)
    inner = part.content if isinstance(part, ToolResult) else ()
    return _select_marks(part.extra) != {} or any(map(_part_has_marks, inner))


def _body_has_marks(body: Mapping[str, Any]) -> bool:
    if any(body.get(key) for key in MARK_KEYS):
        return True
    return any(_body_has_marks(part) for key in _LIST_KEYS for part in dicts_in_list(body.get(key)))


def without_marks(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block, a message or a tool without marks, also on the parts of its content."""
    out = {key: value for key, value in body.items() if key not in MARK_KEYS}
    for key in _LIST_KEYS:
        if isinstance(parts := out.get(key), list):
            out[key] = [
                without_marks(cast("Mapping[str, Any]", part))
                if isinstance(part, Mapping)
                else part
                for part in cast("list[Any]", parts)
            ]
    return out


def move_marks(message: Message, marked: Message | None) -> Message:
    """Return a message with the marks of another one, and without its own. None has no marks."""
    parts = _move_marks_of_parts(message.parts, marked.parts if marked else ())
    extra = _move_extra_marks(message.extra, marked.extra if marked else None)
    return replace(message, parts=parts, extra=extra)


def _move_marks_of_parts(parts: Sequence[Any], marked_parts: Sequence[Any]) -> tuple[Any, ...]:
    pairs = zip(parts, chain(marked_parts, repeat(None)), strict=False)
    return tuple(_move_part_marks(part, marked_part) for part, marked_part in pairs)


def _move_part_marks(part: Any, marked: Any) -> Any:
    if isinstance(part, OpaqueBlock):
        data = marked.data if isinstance(marked, OpaqueBlock) else None
        return replace(part, data={**without_marks(part.data), **_select_marks(data)})
    other_extra = None if isinstance(marked, OpaqueBlock) or marked is None else marked.extra
    part = replace(part, extra=_move_extra_marks(part.extra, other_extra))
    if not isinstance(part, ToolResult):
        return part
    marked_content = marked.content if isinstance(marked, ToolResult) else ()
    return replace(part, content=_move_marks_of_parts(part.content, marked_content))


def _move_extra_marks(
    extra: Mapping[str, Any] | None, other_extra: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    own_extra = {key: value for key, value in (extra or {}).items() if key not in MARK_KEYS}
    return {**own_extra, **_select_marks(other_extra)} or None


def _select_marks(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: values[key] for key in MARK_KEYS if values.get(key)} if values else {}


def locate_marks(
    rendering: IncrementalRenderer, window: Window, marked: Mapping[int, Message]
) -> tuple[CallerMark, ...]:
    """Find the places of the marks in the rendered blocks. Hidden messages have none.

    `marked` are the messages with marks by position, as the caller has passed them last.
    """

    def render_entry(entry: Entry) -> Message:
        return move_marks(render_entry_message(entry), marked.get(entry.seq))

    entries = [window.entries[seq] for seq in marked if seq in window.entries]
    rounds = {entry.round.entries[0].seq: entry.round for entry in entries}
    marks: list[CallerMark] = []
    for seq in sorted(rounds):
        start, blocks = rendering.render_round_again(rounds[seq], render_entry)
        for index, block in enumerate(blocks, start):
            marks += [CallerMark(index, *mark) for mark in _find_body_marks(block.body)]
    return tuple(marks)


def _find_body_marks(body: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return the marks of a body. 0 is the body itself, 1 the last part of its content."""
    own_marks = _select_marks(body)
    places = [(0, own_marks)] if own_marks else []
    for key in _LIST_KEYS:
        parts = list_or_none(body.get(key)) or []
        for index, part in enumerate(parts):
            if marks := _select_marks(dict_or_none(part)):
                places.append((len(parts) - index, marks))
    return places


def place_marks(blocks: Sequence[PromptBlock], marks: Sequence[CallerMark]) -> list[PromptBlock]:
    """Return blocks with exactly these marks, on copies of those that change."""
    out = list(blocks)
    for index, block in enumerate(blocks):
        if _body_has_marks(block.body):
            out[index] = replace(block, body=without_marks(block.body))
    for mark in marks:
        block = out[mark.block]
        out[mark.block] = replace(block, body=_with_mark(block.body, mark))
    return out


def _with_mark(body: Mapping[str, Any], mark: CallerMark) -> dict[str, Any]:
    if not mark.from_end:
        return {**body, **mark.keys}
    key = next(key for key in _LIST_KEYS if key in body)
    content: Any = body[key]
    # A text and a list of one text are the same message.
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    index = len(parts) - mark.from_end
    parts[index] = {**parts[index], **mark.keys}
    return {**body, key: parts}
