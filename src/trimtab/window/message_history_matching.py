"""Whether two messages say the same, whatever their wire format kept beside."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

from trimtab.log.edits import ERASED_PLACEHOLDER, erase_message_payload
from trimtab.log.erase import RECALL_TOOL_NAMES
from trimtab.log.message import Extra, Media, Message, OpaqueBlock, Part, Text, ToolCall, ToolResult
from trimtab.window.entries_rounds_groups import Entry
from trimtab.window.window import Window

_DIALECTS_WITHOUT_ERROR_FLAG = frozenset({"openai_chat", "openai_responses"})
"""Dialects in which no result can say that its tool failed."""
_DIALECTS_WITHOUT_RESULT_MEDIA = frozenset({"openai_chat"})
"""Dialects whose results are texts."""


def match_prefix_and_rewind_point(
    window: Window, messages: Sequence[Message], *, after_seq: int = 0
) -> tuple[int, int | None]:
    """How many of the messages are known already, and the position to go back to where others
    are known behind them; with those goes a repair before them. The first of them is looked for
    behind a position.

    Where all of the last one is erased here, it could be any: with others behind it, it is new.
    """
    matched, repair, unsure = 0, None, None
    for entry in list_entries_after(window, after_seq):
        start = (repair or entry.seq) - 1
        if entry.is_repair:
            repair = repair or entry.seq
        elif matched < len(messages) and _is_known_message(window, entry, messages[matched]):
            unsure = start if _matches_by_erasure_alone(entry.message, messages[matched]) else None
            matched, repair = matched + 1, None
        elif matched == len(messages) and unsure is not None:
            return matched - 1, unsure
        else:
            return matched, start
    return matched, None


def list_entries_after(window: Window, seq: int) -> list[Entry]:
    """Messages behind a position, oldest first, at the cost of what they are."""
    newer = takewhile(lambda entry: entry.seq > seq, reversed(window.entries.values()))
    return [*newer][::-1]


def _is_known_message(window: Window, entry: Entry, message: Message) -> bool:
    """Whether it is the same; what was erased here may still be told by whoever sends it again."""
    if is_same_message(entry.message, message):
        return True
    if _answers_recall(entry) and is_same_message(_without_result_media(entry.message), message):
        return True  # the picture that came back with it is in the log alone
    parts = entry.message.parts
    gone = [
        i for i in range(len(parts)) if window.base.find_erasing_event(entry.seq, i) is not None
    ]
    if not gone:
        return False
    if len(gone) == len(parts):
        return is_same_message(entry.message, erase_message_payload(message, None))
    if _is_same_after_erasing(gone, entry.message, message):
        return True
    # An assistant's opaque blocks may be missing there, and the others then stand further ahead.
    told = [index for index, part in enumerate(parts) if not isinstance(part, OpaqueBlock)]
    ahead = [place for place, index in enumerate(told) if index in gone]
    return entry.message.role == "assistant" and _is_same_after_erasing(
        ahead, _without_opaque(entry.message), _without_opaque(message)
    )


def _answers_recall(entry: Entry) -> bool:
    """Whether all results in a message are those of our own tools."""
    calls = [call for call in entry.round.calls if call.result and call.result.entry is entry]
    return bool(calls) and all(call.name in RECALL_TOOL_NAMES for call in calls)


def _without_result_media(message: Message) -> Message:
    def text_alone(part: Part) -> Part:
        if not isinstance(part, ToolResult):
            return part
        texts = tuple(inner for inner in part.content if isinstance(inner, Text))
        return replace(part, content=texts)

    return replace(message, parts=tuple(map(text_alone, message.parts)))


def _is_same_after_erasing(erased_parts: Sequence[int], mine: Message, theirs: Message) -> bool:
    for part in erased_parts:
        theirs = erase_message_payload(theirs, part)
    return is_same_message(mine, theirs)


def _without_opaque(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, OpaqueBlock))
    return replace(message, parts=parts)


def _matches_by_erasure_alone(mine: Message, theirs: Message) -> bool:
    """Whether nothing of it was compared: calls and results are still known by their ids."""
    opaque = mine.role != "assistant"
    return not _comparable_parts(mine, include_opaque=opaque) and bool(
        _comparable_parts(theirs, include_opaque=opaque)
    )


def is_same_message(one: Message, other: Message) -> bool:
    """True where role, texts, calls, results and media agree, and opaque blocks of whoever is not
    the assistant; extras may not, nor may what the dialect of one cannot say."""
    opaque = one.origin == other.origin and one.role != "assistant"
    mine, theirs = (
        _comparable_parts(one, include_opaque=opaque),
        _comparable_parts(other, include_opaque=opaque),
    )
    if one.role != other.role and not (_only_results(mine) and _only_results(theirs)):
        return False
    origins = {one.origin, other.origin}
    return len(mine) == len(theirs) and all(
        _is_same_part(each, its, origins) for each, its in zip(mine, theirs, strict=True)
    )


def _only_results(parts: list[Part]) -> bool:
    """Results have a role of their own in one dialect, and are the user's in another."""
    return bool(parts) and all(isinstance(part, ToolResult) for part in parts)


def _is_same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON: who reads and writes it again may space it anew."""
    if one == other:
        return True
    with suppress(ValueError, RecursionError):
        return json.loads(one) == json.loads(other)
    return False


def _comparable_parts(message: Message, *, include_opaque: bool = False) -> list[Part]:
    unsaid = (Text(text=""), Text(text=ERASED_PLACEHOLDER))
    return [
        part
        for part in message.parts
        if (include_opaque or not isinstance(part, OpaqueBlock)) and part not in unsaid
    ]


def _is_same_part(one: Part, other: Part, origins: Set[str]) -> bool:
    match one, other:
        case Text(), Text():
            return one.text == other.text
        case ToolCall(), ToolCall():
            same_call = one.id == other.id and one.name == other.name
            return same_call and _is_same_json(one.arguments, other.arguments)
        case ToolResult(), ToolResult():
            return one.call_id == other.call_id and _is_same_result(one, other, origins)
        case Media(), Media():
            return _is_same_media(one, other, origins)
        case OpaqueBlock(), OpaqueBlock():
            return _without_cache_mark(one.data) == _without_cache_mark(other.data)
        case _:
            return False


def _is_same_result(one: ToolResult, other: ToolResult, origins: Set[str]) -> bool:
    if one.text != other.text or (
        one.is_error != other.is_error and not origins & _DIALECTS_WITHOUT_ERROR_FLAG
    ):
        return False
    if len(origins) > 1 and origins & _DIALECTS_WITHOUT_RESULT_MEDIA:
        return True
    kinds = (Media, OpaqueBlock) if len(origins) == 1 else Media
    mine, theirs = ([p for p in each.content if isinstance(p, kinds)] for each in (one, other))
    return len(mine) == len(theirs) and all(
        _is_same_part(each, its, origins) for each, its in zip(mine, theirs, strict=True)
    )


def _is_same_media(one: Media, other: Media, origins: Set[str]) -> bool:
    if (one.kind, one.data, one.url) != (other.kind, other.data, other.url):
        return False
    # A file that lies with its provider is named by an extra alone.
    named = one.data is not None or one.url is not None or len(origins) > 1
    return named or _without_cache_mark(one.extra) == _without_cache_mark(other.extra)


def _without_cache_mark(block: Extra) -> dict[str, Any]:
    """A block without its cache mark, which moves from call to call."""
    return {key: value for key, value in (block or {}).items() if key != "cache_control"}
