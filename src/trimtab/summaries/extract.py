"""An extractive summary: no model, only lines that were said.

It is what stands in when no better summary is there, so it keeps what a reader would look for
first: what the user asked, what the assistant concluded, which tools were called on what, and how
their results began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from trimtab.log.message import (
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    extract_text_or_arguments,
)
from trimtab.text.identifiers import RankedIdentifiers, count_identifiers, join_string_values
from trimtab.tokens.counter import TokenCounter

MAX_EXTRACT_TOKENS = 500
"""Of the sections of a summary; the list of names beside them has tokens of its own."""
MAX_READ_CHARS = 1_000
"""Of one message that are looked at."""
MAX_LINE_CHARS = 160
"""Of one line that are kept."""
MIN_LINE_START_CHARS = 40
"""Of a line that tell what it is about."""
FIRST_REQUEST_DIVISOR = 4
"""A share: of so many tokens of a summary one is for what the user said first, as the task is and
what holds for all of it."""
USER_LINE_PREFIX = "- user: "
"""How the line of what a user said begins."""
NAMES_LINE_PREFIX = "- named: "
"""How the line of names begins."""
_CUT = re.compile(r"(?<!\S)\S*…")
"""A word that a line of the prior summary was cut in."""


def extract_summary(
    prior_summary: str,
    messages: Sequence[Message],
    counter: TokenCounter,
    *,
    max_tokens: int = MAX_EXTRACT_TOKENS,
    max_names: int = 0,
    count_names: Callable[[Part], Mapping[str, int]] | None = None,
) -> str:
    """The prior summary's lines and one line for each thing said since, oldest cut first; what the
    user said first stays, in a quarter of the tokens.

    With `max_names` a last line lists the words that were named most, the prior's included; it is
    not counted in `max_tokens`. `count_names` is for who has read the parts of messages before.
    """
    lines = [line for line in prior_summary.splitlines() if line.strip()]
    said = [_CUT.sub("", line.removeprefix(NAMES_LINE_PREFIX)) for line in lines]
    lines = [line for line in lines if not line.startswith(NAMES_LINE_PREFIX)]
    for message in messages:
        lines.extend(_message_lines(message))
    kept = _best_lines(lines, counter, max_tokens)
    if max_names:
        names = Counter(count_identifiers("\n".join(said)))
        for message in messages:
            for part in message.parts:
                names.update((count_names or count_part_identifiers)(part))
        if found := RankedIdentifiers(names).list_top(max_names, kept):
            kept = f"{kept}\n{NAMES_LINE_PREFIX}{', '.join(found)}".lstrip("\n")
    return kept


def summary_has_message_lines(summary_text: str, message: Message) -> bool:
    """Whether each line that a message would add is in a summary, whole or its beginning."""
    told = summary_text.splitlines()
    cut = tuple(line.removesuffix("…") for line in told if line.endswith("…"))
    return all(line in told or line.startswith(cut) for line in _message_lines(message))


def _best_lines(lines: list[str], counter: TokenCounter, max_tokens: int) -> str:
    """The newest lines; where they leave out what the user said first, that in its share of the
    tokens and the newest of all else."""

    def size(index: int) -> int:
        return counter.count(lines[index] + "\n")

    kept = _newest_fitting(size, range(len(lines)), max_tokens)
    users = [index for index, line in enumerate(lines) if line.startswith(USER_LINE_PREFIX)]
    if users and users[0] not in kept:
        room = max_tokens // FIRST_REQUEST_DIVISOR
        lines[users[0]] = _line_start(lines[users[0]], counter, room)
        first: list[int] = []
        for index in users:
            if size(index) > room:
                break
            room -= size(index)
            first.append(index)
        others = [index for index in range(len(lines)) if index not in first]
        kept = {
            *first,
            *_newest_fitting(size, others, max_tokens - max_tokens // FIRST_REQUEST_DIVISOR + room),
        }
    if not kept:
        return keep_newest_lines("\n".join(lines), counter, max_tokens)
    return "\n".join(lines[index] for index in sorted(kept))


def _newest_fitting(size: Callable[[int], int], among: Sequence[int], room: int) -> set[int]:
    """The last of the lines that fit."""
    kept: set[int] = set()
    for index in reversed(among):
        room -= size(index)
        if room < 0:
            break
        kept.add(index)
    return kept


def _line_start(line: str, counter: TokenCounter, max_tokens: int) -> str:
    """As much of a line's start as fits; all of it where that would be too little to tell."""
    if counter.count(line + "\n") <= max_tokens:
        return line
    low, high = 0, len(line) - 1
    while low < high:
        middle = (low + high + 1) // 2
        fits = counter.count(f"{line[:middle]}…\n") <= max_tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return f"{line[:low]}…" if low >= MIN_LINE_START_CHARS else line


def keep_newest_lines(text: str, counter: TokenCounter, max_tokens: int) -> str:
    """The last lines of a summary that fit: its oldest content goes first."""
    kept: list[str] = []
    used = 0
    for line in reversed(text.splitlines()):
        size = counter.count(line + "\n")
        if used + size > max_tokens:
            break
        kept.append(line)
        used += size
    # A text may count for more than its lines do one by one.
    while len(kept) > 1 and counter.count("\n".join(kept)) > max_tokens:
        kept.pop()
    last = kept[0] if kept else next(reversed(text.splitlines()), "")
    if len(kept) > 1 or counter.count(last) <= max_tokens:
        return "\n".join(reversed(kept or [last]))
    return _keep_newest_words(last, counter, max_tokens)


def _keep_newest_words(line: str, counter: TokenCounter, max_tokens: int) -> str:
    words = line.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        fits = counter.count(" ".join(words[-middle:])) <= max_tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return " ".join(words[len(words) - low :])


def count_part_identifiers(part: Part) -> dict[str, int]:
    """The identifiers of all that a part says, each with how often it occurs."""
    text = extract_text_or_arguments(part) or ""
    return count_identifiers(join_string_values(text) if isinstance(part, ToolCall) else text)


def _message_lines(message: Message) -> list[str]:
    said: list[str] = []
    for part in message.parts:
        if isinstance(part, Text) and (text := _first_line(part.text)):
            said.append(f"- {message.role}: {text}")
        elif isinstance(part, ToolCall):
            said.append(f"- called {part.name} {_shorten(part.arguments, 100)}")
        elif isinstance(part, ToolResult) and (text := _first_line(part.text)):
            said.append(f"- result: {text}")
    return said


def _first_line(text: str) -> str:
    for line in text[:MAX_READ_CHARS].splitlines():
        if line.strip():
            return _shorten(line.strip(), MAX_LINE_CHARS)
    return ""


def _shorten(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
