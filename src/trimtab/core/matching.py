"""Whether two messages say the same, whatever their wire format kept beside."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trimtab.core.edits import ERASED, erased_message
from trimtab.core.message import Extra, Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.recall import erased_by
from trimtab.core.rounds import Entry
from trimtab.core.window import Window

_NO_FLAG = frozenset({"openai_chat", "openai_responses"})
"""Dialects in which no result can say that its tool failed."""
_NO_MEDIA = frozenset({"openai_chat"})
"""Dialects whose results are texts."""


def known_prefix(window: Window, said: Sequence[Message]) -> tuple[int, int | None]:
    """How many of the messages are known already, and the position to go back to where others
    are known behind them; with those goes a repair before them.

    Where all of the last one is erased here, it could be any: with others behind it, it is new.
    """
    matched, repair, unsure = 0, None, None
    for entry in window.entries.values():
        start = (repair or entry.seq) - 1
        if entry.repair:
            repair = repair or entry.seq
        elif matched < len(said) and _known(window, entry, said[matched]):
            unsure = start if _by_erasure_alone(entry.message, said[matched]) else None
            matched, repair = matched + 1, None
        elif matched == len(said) and unsure is not None:
            return matched - 1, unsure
        else:
            return matched, start
    return matched, None


def _known(window: Window, entry: Entry, message: Message) -> bool:
    """Whether it is the same; what was erased here may still be told by whoever sends it again."""
    if same(entry.message, message):
        return True
    parts = entry.message.parts
    gone = [i for i in range(len(parts)) if erased_by(window, entry.seq, i) is not None]
    if not gone:
        return False
    if len(gone) == len(parts):
        return same(entry.message, erased_message(message, None))
    if _same_without(gone, entry.message, message):
        return True
    # An assistant's opaque blocks may be missing there, and the others then stand further ahead.
    told = [index for index, part in enumerate(parts) if not isinstance(part, Opaque)]
    ahead = [place for place, index in enumerate(told) if index in gone]
    return entry.message.role == "assistant" and _same_without(
        ahead, _without_opaque(entry.message), _without_opaque(message)
    )


def _same_without(gone: Sequence[int], mine: Message, theirs: Message) -> bool:
    for part in gone:
        theirs = erased_message(theirs, part)
    return same(mine, theirs)


def _without_opaque(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Opaque))
    return replace(message, parts=parts)


def _by_erasure_alone(mine: Message, theirs: Message) -> bool:
    """Whether nothing of it was compared: calls and results are still known by their ids."""
    opaque = mine.role != "assistant"
    return not _told(mine, opaque=opaque) and bool(_told(theirs, opaque=opaque))


def continues(window: Window, message: Message) -> bool:
    """Whether an assistant's item belongs to the calls that are open: items come singly."""
    last = window.rounds[-1].entries[-1] if window.rounds else None
    return (
        last is not None
        and message.origin == "openai_responses"
        and last.message.role == "assistant"
        and last.message.origin == message.origin
    )


def same(one: Message, other: Message) -> bool:
    """True where role, texts, calls, results and media agree, and opaque blocks of whoever is not
    the assistant; extras may not, nor may what the dialect of one cannot say."""
    opaque = one.origin == other.origin and one.role != "assistant"
    mine, theirs = _told(one, opaque=opaque), _told(other, opaque=opaque)
    if one.role != other.role and not (_only_results(mine) and _only_results(theirs)):
        return False
    origins = {one.origin, other.origin}
    return len(mine) == len(theirs) and all(
        _same(each, its, origins) for each, its in zip(mine, theirs, strict=True)
    )


def _only_results(parts: list[Part]) -> bool:
    """Results have a role of their own in one dialect, and are the user's in another."""
    return bool(parts) and all(isinstance(part, ToolResult) for part in parts)


def _same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON: who reads and writes it again may space it anew."""
    if one == other:
        return True
    with suppress(ValueError, RecursionError):
        return json.loads(one) == json.loads(other)
    return False


def _told(message: Message, *, opaque: bool = False) -> list[Part]:
    unsaid = (Text(text=""), Text(text=ERASED))
    return [
        part
        for part in message.parts
        if (opaque or not isinstance(part, Opaque)) and part not in unsaid
    ]


def _same(one: Part, other: Part, origins: Set[str]) -> bool:
    match one, other:
        case Text(), Text():
            return one.text == other.text
        case ToolCall(), ToolCall():
            same_call = one.id == other.id and one.name == other.name
            return same_call and _same_json(one.arguments, other.arguments)
        case ToolResult(), ToolResult():
            return one.call_id == other.call_id and _same_result(one, other, origins)
        case Media(), Media():
            return _same_media(one, other, origins)
        case Opaque(), Opaque():
            return _unmarked(one.data) == _unmarked(other.data)
        case _:
            return False


def _same_result(one: ToolResult, other: ToolResult, origins: Set[str]) -> bool:
    if one.text != other.text or (one.is_error != other.is_error and not origins & _NO_FLAG):
        return False
    if len(origins) > 1 and origins & _NO_MEDIA:
        return True
    kinds = (Media, Opaque) if len(origins) == 1 else Media
    mine, theirs = ([p for p in each.content if isinstance(p, kinds)] for each in (one, other))
    return len(mine) == len(theirs) and all(
        _same(each, its, origins) for each, its in zip(mine, theirs, strict=True)
    )


def _same_media(one: Media, other: Media, origins: Set[str]) -> bool:
    if (one.kind, one.data, one.url) != (other.kind, other.data, other.url):
        return False
    # A file that lies with its provider is named by an extra alone.
    named = one.data is not None or one.url is not None or len(origins) > 1
    return named or _unmarked(one.extra) == _unmarked(other.extra)


def _unmarked(block: Extra) -> dict[str, Any]:
    """A block without its cache mark, which moves from call to call."""
    return {key: value for key, value in (block or {}).items() if key != "cache_control"}
