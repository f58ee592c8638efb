"""Hidden is not lost: what a handle names, and what a search finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.core.edits import parse_handle
from trimtab.core.event import canonical
from trimtab.core.message import Media, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.rounds import Entry
from trimtab.core.window import Window

RECALL = "recall"
SEARCH = "search_history"

MAX_CHARS = 8_000
"""Of one answer of a recall tool."""
MAX_HITS = 5
"""Of one search."""

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
    named = parse_handle(handle)
    if named.part is not None:
        entry = window.entries.get(named.first)
        if entry is None or named.part >= len(entry.message.parts):
            raise LookupError(f"nothing is called {handle}; positions go up to m{window.seq}")
        _refuse_erased(window, named.first, named.part)
        return part_text(entry.message.parts[named.part])
    found = [e for seq, e in window.entries.items() if named.first <= seq <= named.last]
    if not found:
        raise LookupError(f"nothing is called {handle}; positions go up to m{window.seq}")
    if len(found) == 1:
        _refuse_erased(window, found[0].seq, None)
    return "\n".join(
        f"[m{entry.seq} {entry.message.role}]\n{_whole(window, entry)}" for entry in found
    )


def answer(window: Window, call: ToolCall) -> str:
    """The answer to a call of a recall tool; what it cannot find, it says."""
    if call.name not in (RECALL, SEARCH):
        raise ValueError(f"{call.name} is not a recall tool; those are {RECALL} and {SEARCH}")
    try:
        asked: dict[str, Any] = json.loads(call.arguments or "{}")
        if call.name == SEARCH:
            return search(window, str(asked.get("query", "")))
        text = recall(window, str(asked.get("handle", "")))
        return excerpt(text, lines=str(asked.get("lines", "")), grep=str(asked.get("grep", "")))
    except (LookupError, ValueError, AttributeError) as error:
        return f"[{error}]"


def excerpt(text: str, *, lines: str = "", grep: str = "", limit: int = MAX_CHARS) -> str:
    """The lines asked for, within the limit; what is left out is said."""
    numbered = list(enumerate(text.splitlines(), 1))
    if lines:
        first, _, last = lines.partition("-")
        low = int(first) if first.strip().isdigit() else 1
        high = (
            int(last) if last.strip().isdigit() else (low if not last and first else len(numbered))
        )
        numbered = [(n, line) for n, line in numbered if low <= n <= high]
    if grep:
        pattern = _pattern(grep)
        numbered = [(n, line) for n, line in numbered if pattern.search(line)]
    out = "\n".join(line for _, line in numbered) if lines or grep else text
    if len(out) <= limit:
        return out or "(no such lines)"
    total = len(text.splitlines())
    return f"{out[:limit]}\n[cut at {limit} characters of {len(out)}; {total} lines, ask for some]"


def search(window: Window, query: str) -> str:
    """The messages that hold most of the words, newest first among equals."""
    words = [word.lower() for word in query.split()]
    scored: list[tuple[int, int, str]] = []
    for seq, index, text in _texts(window):
        lowered = text.lower()
        score = sum(1 for word in words if word in lowered)
        if score:
            scored.append((score, seq, _snippet(text, lowered, words, f"m{seq}.{index}")))
    scored.sort(key=lambda hit: (-hit[0], -hit[1]))
    return "\n\n".join(hit[2] for hit in scored[:MAX_HITS]) or "(nothing found)"


def part_text(part: Part) -> str:
    """All that a part says, as text."""
    match part:
        case Text() | ToolResult():
            return part.text
        case ToolCall():
            return part.arguments
        case Media():
            return part.data or part.url or ""
        case Opaque():
            return canonical(part.data)


def _whole(window: Window, entry: Entry) -> str:
    lines: list[str] = []
    for index, part in enumerate(entry.message.parts):
        event = _erased_by(window, entry.seq, index)
        text = part_text(part) if event is None else f"[erased by event {event}]"
        lines.append(f"{part.name} {text}" if isinstance(part, ToolCall) else text)
    return "\n".join(lines)


def _texts(window: Window) -> Iterator[tuple[int, int, str]]:
    """All that was said, but for earlier searches: they would find themselves first."""
    for seq, entry in window.entries.items():
        own = [c for c in entry.round.calls if c.name in (RECALL, SEARCH)]
        answers = {call.result.key for call in own if call.result is not None}
        for index, part in enumerate(entry.message.parts):
            if isinstance(part, ToolCall) and part.name in (RECALL, SEARCH):
                continue
            if isinstance(part, Text | ToolResult | ToolCall) and (seq, index) not in answers:
                yield seq, index, part_text(part)


def _snippet(text: str, lowered: str, words: list[str], handle: str) -> str:
    at = min((i for word in words if (i := lowered.find(word)) >= 0), default=0)
    start = max(0, at - 100)
    return f"{handle}: {'…' if start else ''}{text[start : at + 300].strip()}"


def _refuse_erased(window: Window, seq: int, part: int | None) -> None:
    event = _erased_by(window, seq, part)
    if event is not None:
        raise Erased(f"m{seq} was erased by event {event} and cannot be recalled")


def _erased_by(window: Window, seq: int, part: int | None) -> int | None:
    """The event that destroyed a part, or any part of the message where none is named."""
    for first, last, erased, event in window.erased:
        if first <= seq <= last and (erased is None or part in (None, erased)):
            return event
    return None


def _pattern(grep: str) -> re.Pattern[str]:
    try:
        return re.compile(grep, re.IGNORECASE)
    except re.error:
        return re.compile(re.escape(grep), re.IGNORECASE)
