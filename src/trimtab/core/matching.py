"""Whether two messages say the same, whatever their wire format kept beside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from trimtab.core.edits import ERASED, erased_message
from trimtab.core.message import Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.recall import erased_by
from trimtab.core.rounds import Entry
from trimtab.core.window import Window


def known_prefix(window: Window, said: Sequence[Message]) -> tuple[int, int | None]:
    """How many of the messages are known already, and the position to go back to where others
    are known behind them; with those goes a repair before them."""
    matched, repair = 0, None
    for entry in window.entries.values():
        if entry.repair:
            repair = repair or entry.seq
        elif matched < len(said) and _known(window, entry, said[matched]):
            matched, repair = matched + 1, None
        else:
            return matched, (repair or entry.seq) - 1
    return matched, None


def _known(window: Window, entry: Entry, message: Message) -> bool:
    """Whether it is the same; what was erased here may still be told by whoever sends it again."""
    parts = range(len(entry.message.parts))
    gone = [part for part in parts if erased_by(window, entry.seq, part) is not None]
    for part in [None] if len(gone) == len(parts) > 0 else gone:
        message = erased_message(message, part)
    return same(entry.message, message)


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
    """True where role, texts, calls, results and media agree; opaque blocks and extras may not."""
    mine, theirs = _told(one), _told(other)
    if one.role != other.role and not (_only_results(mine) and _only_results(theirs)):
        return False
    return len(mine) == len(theirs) and all(map(_same, mine, theirs))


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


def _told(message: Message) -> list[Part]:
    unsaid = (Text(text=""), Text(text=ERASED))
    return [p for p in message.parts if not isinstance(p, Opaque) and p not in unsaid]


def _same(one: Part, other: Part) -> bool:
    match one, other:
        case Text(), Text():
            return one.text == other.text
        case ToolCall(), ToolCall():
            same_call = one.id == other.id and one.name == other.name
            return same_call and _same_json(one.arguments, other.arguments)
        case ToolResult(), ToolResult():
            return one.call_id == other.call_id and one.text == other.text
        case Media(), Media():
            return one.kind == other.kind and one.data == other.data and one.url == other.url
        case _:
            return False
