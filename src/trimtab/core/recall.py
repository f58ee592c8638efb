"""Hidden is not lost: what a handle names, and what a search finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from trimtab.core.edits import Handle, parse_handle
from trimtab.core.event import Edit, canonical
from trimtab.core.levels import opened
from trimtab.core.message import Media, Message, Opaque, Part, ToolCall, ToolResult, words_of_part
from trimtab.core.passages import LOOKED_AT
from trimtab.core.passages import found as passages
from trimtab.core.pattern import matching
from trimtab.core.search import (
    RECALL,
    RECALL_TOOLS,
    SEARCH,
    asked,
    best,
    score,
    texts_of,
    words_of,
)
from trimtab.core.window import Window

MAX_CHARS = 8_000
"""Of one answer of a recall tool."""
NOTHING = "(nothing found)"
NEAR = 3
"""Messages that are named where a handle names none."""
_LINES = re.compile(r"(\d+)?\s*(?:(-|–|:|to)\s*(\d+)?)?", re.IGNORECASE)

TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "name": RECALL,
        "description": (
            "Show text that was hidden to save room. Placeholders name its handle, such as "
            "m12.0, m12 or m3-m50. Ask for lines or for a pattern when only a part is needed."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The handle from the placeholder."},
                "lines": {"type": "string", "description": "Line numbers, such as 10-40."},
                "grep": {"type": "string", "description": "Only lines that match this pattern."},
            },
            "required": ["handle"],
        },
    },
    {
        "name": SEARCH,
        "description": "Find earlier messages of this conversation, hidden ones included.",
        "input_schema": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for."}},
            "required": ["query"],
        },
    },
)
"""Definitions of the recall tools, in the Anthropic form; a dialect writes its own."""


class Erased(LookupError):
    """What was asked for was destroyed, by request or by a retention rule."""


def recall(window: Window, handle: str) -> str:
    """The text a handle names, exactly as it was said.

    One part is its bare text; whole messages come with a line before each that names it.
    """
    return recalled(window, handle, _said(window, parse_handle(handle)))


def recalled(window: Window, handle: str, said: Mapping[int, Message]) -> str:
    """The same, from messages by position, which may have left the window's memory."""
    named = parse_handle(handle)
    if named.part is not None:
        message = said.get(named.first)
        if message is None or named.part >= len(message.parts):
            raise nothing_called(handle, window.seq, window.entries, message)
        _refuse_erased(window, named.first, [named.part])
        return part_text(message.parts[named.part])
    found = {seq: message for seq, message in said.items() if named.first <= seq <= named.last}
    if not found:
        raise nothing_called(handle, window.seq, window.entries)
    if len(found) == 1:
        [(seq, message)] = found.items()
        _refuse_erased(window, seq, range(len(message.parts)))
    return "\n".join(
        f"[m{seq} {message.role}]\n{_whole(window, seq, message)}" for seq, message in found.items()
    )


def named_in(window: Window, handle: str) -> Handle:
    """The handle, refused where it names nothing; of what has left memory nothing is known here."""
    named = parse_handle(handle)
    said = _said(window, named)
    message = said.get(named.first) if named.part is not None else None
    known = message is None or (named.part or 0) < len(message.parts)
    here = named.first <= window.gone_last or (said and known)
    if not (here and 1 <= named.first <= named.last):
        raise nothing_called(handle, window.seq, window.entries, message)
    return named


def nothing_called(
    handle: str, last: int, known: Iterable[int] = (), message: Message | None = None
) -> LookupError:
    """What a handle is wrong about: its part of a message, its position, or how far those go.

    `last` is the newest position, `known` are those of messages.
    """
    named = parse_handle(handle)
    if named.last < named.first:
        right = f"m{named.last}-m{named.first}"
        return LookupError(
            f"nothing is called {handle}: a range goes from the lower to the higher, {right}"
        )
    if message is not None:
        most = len(message.parts) - 1
        return LookupError(f"nothing is called {handle}; the last part is m{named.first}.{most}")
    if not 0 < named.first <= last:
        return LookupError(f"nothing is called {handle}; positions go up to m{last}")
    # Settings, calls and edits take positions, too, and what was undone is in no window.
    near = sorted(sorted(known, key=lambda seq: abs(seq - named.first))[:NEAR])
    told = f"; the nearest are {', '.join(f'm{seq}' for seq in near)}" if near else ""
    return LookupError(
        f"nothing is called {handle}: position {named.first} is no message (it is settings, a call "
        f"or an edit) or was undone{told}"
    )


def answer(window: Window, call: ToolCall) -> str:
    """The answer to a call of a recall tool; what it cannot find, it says."""
    refuse_others(call)
    try:
        wanted = arguments_of(call)
        if call.name == SEARCH:
            return search(window, wanted["query"])
        if not wanted["lines"] and not wanted["grep"]:
            named = parse_handle(wanted["handle"])
            if level := opened(named, _chain(window), _said(window, named), limit=MAX_CHARS):
                return level
        return excerpt(recall(window, wanted["handle"]), wanted["lines"], wanted["grep"])
    except (LookupError, ValueError) as error:
        return f"[{error}]"


def _said(window: Window, named: Handle) -> dict[int, Message]:
    entries = window.entries
    span = range(named.first, min(named.last, window.seq) + 1)
    return {seq: entries[seq].message for seq in span if seq in entries}


def _chain(window: Window) -> Iterator[Edit]:
    """The summary in force, the one it carries on, and so on, as far as they are in memory."""
    known = {event.seq: event.body for event in window.past if isinstance(event.body, Edit)}
    edit = window.summary
    while edit is not None:
        yield edit
        edit = known.get(edit.prior)


def refuse_others(call: ToolCall) -> None:
    """Raise where the call is not one of a recall tool."""
    if call.name not in RECALL_TOOLS:
        raise ValueError(f"{call.name} is not a recall tool; those are {RECALL} and {SEARCH}")


def arguments_of(call: ToolCall) -> dict[str, str]:
    """What a call of a recall tool asks for; what it leaves out, or says to be null, is empty."""
    try:
        given: Any = json.loads(call.arguments or "{}")
    except RecursionError:
        given = None
    if not isinstance(given, dict):
        raise ValueError("a recall tool takes an object of arguments")  # noqa: TRY004 - of JSON
    named = cast("dict[str, Any]", given)
    keys = ("query", "handle", "lines", "grep")
    return {key: "" if (value := named.get(key)) is None else str(value) for key in keys}


def excerpt(text: str, lines: str = "", grep: str = "", *, limit: int = MAX_CHARS) -> str:
    """The lines asked for, within the limit; what is left out is said."""
    numbered = list(enumerate(text.splitlines(), 1))
    if lines:
        span = _span(lines, len(numbered))
        if not span:
            return "(no such lines; write 10-40)"
        numbered = [(n, line) for n, line in numbered if n in span]
    if grep:
        holds = matching(grep)
        numbered = [(n, line) for n, line in numbered if holds(line)]
    out = "\n".join(line for _, line in numbered) if lines or grep else text
    if len(out) <= limit:
        return out or "(no such lines)"
    total = len(text.splitlines())
    return f"{out[:limit]}\n[cut at {limit} characters of {len(out)}; {total} lines, ask for some]"


def _span(lines: str, total: int) -> range:
    """The numbers that `10-40`, `10` or `10-` name; empty where they are no such words."""
    match = _LINES.fullmatch(lines.strip())
    if match is None or not (match[1] or match[3]):
        return range(0)
    low = int(match[1] or 1)
    high = int(match[3]) if match[3] else (max(low, total) if match[2] else low)
    return range(low, high + 1)


def is_answer(window: Window, message: Message) -> bool:
    """Whether a message answers calls of the recall tools, and says nothing else."""
    if not window.settings.recall or not message.results:
        return False
    own = {call.id for call in window.open_calls() if call.name in RECALL_TOOLS}
    return all(isinstance(p, ToolResult) and p.call_id in own for p in message.parts)


def search(window: Window, query: str) -> str:
    """The passages that hold most of the words, of what the model does not see first."""
    wanted = asked(query)
    hits = [(score(wanted, words_of(text)), seq) for seq, text in _texts(window)]
    seen = in_sight(window)
    chosen = best([hit for hit in hits if hit[1] not in seen], LOOKED_AT)
    chosen += best([hit for hit in hits if hit[1] in seen], LOOKED_AT - len(chosen))
    said = {seq: window.entries[seq].message for seq in chosen}
    return passages(said, wanted, window.counter, seen) or NOTHING


def in_sight(window: Window) -> frozenset[int]:
    """Positions of the messages that the model sees whole."""
    return frozenset(
        entry.seq
        for group in window.groups
        if group.hidden is None
        for entry in group.entries()
        if not entry.edits
    )


def part_text(part: Part) -> str:
    """All that a part says, as text."""
    match part:
        case Media():
            return part.data or part.url or ""
        case Opaque():
            return canonical(part.data)
        case _:
            return words_of_part(part) or ""


def _whole(window: Window, seq: int, message: Message) -> str:
    lines: list[str] = []
    for index, part in enumerate(message.parts):
        event = erased_by(window, seq, index)
        text = part_text(part) if event is None else f"[erased by event {event}]"
        lines.append(f"{part.name} {text}" if isinstance(part, ToolCall) else text)
    return "\n".join(lines)


def _texts(window: Window) -> Iterator[tuple[int, str]]:
    """All that was said, but for earlier searches: they would find themselves first."""
    for seq, entry in window.entries.items():
        own = [c for c in entry.round.calls if c.name in RECALL_TOOLS]
        answers = {call.result.seq for call in own if call.result is not None}
        if seq not in answers:
            yield seq, texts_of(entry.message)


def _refuse_erased(window: Window, seq: int, parts: Iterable[int]) -> None:
    by = [erased_by(window, seq, part) for part in parts]
    if by and None not in by:
        raise Erased(f"m{seq} was erased by event {by[0]} and cannot be recalled")


def erased_by(window: Window, seq: int, part: int | None) -> int | None:
    """The event that destroyed a part, or any part of the message where none is named."""
    for first, last, erased, event in window.erased:
        if first <= seq <= last and (erased is None or part in (None, erased)):
            return event
    return None
