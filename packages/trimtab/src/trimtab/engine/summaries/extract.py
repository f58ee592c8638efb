"""An extractive summary: no model, only lines from the conversation.

It is used when there is no better summary. So it keeps what a reader would look for first: what the
user asked, what the assistant concluded, which tools were called with what, and how their results
began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from trimtab.engine.log.message import (
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    extract_text_or_arguments,
)
from trimtab.engine.text.identifiers import RankedIdentifiers, count_identifiers, join_string_values
from trimtab.engine.text.quoting import collapse_whitespace
from trimtab.engine.tokens.counter import TokenCounter

MAX_EXTRACT_TOKENS = 500
"""Maximum tokens of the sections of a summary. The list of names has its own tokens."""
MAX_READ_CHARS = 1_000
"""Maximum characters of one message to read."""
MAX_LINE_CHARS = 160
"""Maximum characters of one line to keep."""
MIN_LINE_START_CHARS = 40
"""Minimum characters of a line's start that show what it is about."""
FIRST_REQUEST_DIVISOR = 4
"""One part in this number of a summary's tokens is for the user's first messages, because they
contain the task and its general rules."""
USER_LINE_PREFIX = "- user: "
"""Prefix of a line with a user's message."""
NAMES_LINE_PREFIX = "- named: "
"""Prefix of the line of names."""
_CUT = re.compile(r"(?<!\S)\S*…")
"""A word of the previous summary that was cut at the end of a line."""


def extract_summary(
    prior_summary: str,
    messages: Sequence[Message],
    counter: TokenCounter,
    *,
    max_tokens: int = MAX_EXTRACT_TOKENS,
    max_names: int = 0,
) -> str:
    """Return the previous summary's lines and one line for each later message, oldest cut first.

    The user's first messages stay, in a quarter of the tokens. With `max_names`, a last line lists
    the most frequent names, including those of the previous summary. It does not count in
    `max_tokens`.
    """
    lines = [line for line in prior_summary.splitlines() if line.strip()]
    source_texts = [_CUT.sub("", line.removeprefix(NAMES_LINE_PREFIX)) for line in lines]
    lines = [line for line in lines if not line.startswith(NAMES_LINE_PREFIX)]
    for message in messages:
        lines.extend(_message_lines(message))
    excerpt = _best_lines(lines, counter, max_tokens)
    if max_names:
        names = Counter(count_identifiers("\n".join(source_texts)))
        for message in messages:
            for part in message.parts:
                names.update(count_part_identifiers(part))
        if top_names := RankedIdentifiers(names).list_top(max_names, excerpt):
            excerpt = f"{excerpt}\n{NAMES_LINE_PREFIX}{', '.join(top_names)}".lstrip("\n")
    return excerpt


def select_messages_missing_in_summary(
    summary_text: str, messages: Iterable[Message]
) -> list[Message]:
    """Return the messages of which a summary does not contain each line, whole or its beginning."""
    summary_lines = summary_text.splitlines()
    starts = tuple(line.removesuffix("…") for line in summary_lines if line.endswith("…"))
    whole = set(summary_lines)
    return [
        message
        for message in messages
        if not all(line in whole or line.startswith(starts) for line in _message_lines(message))
    ]


def _best_lines(lines: list[str], counter: TokenCounter, max_tokens: int) -> str:
    """Return the newest lines.

    If they leave out the user's first messages, return these in their share of the tokens, and the
    newest of all others.
    """

    def size(index: int) -> int:
        return counter.count(lines[index] + "\n")

    indexes = _newest_fitting(size, range(len(lines)), max_tokens)
    users = [index for index, line in enumerate(lines) if line.startswith(USER_LINE_PREFIX)]
    if users and users[0] not in indexes:
        room = max_tokens // FIRST_REQUEST_DIVISOR
        lines[users[0]] = _line_start(lines[users[0]], counter, room)
        first: list[int] = []
        for index in users:
            if size(index) > room:
                break
            room -= size(index)
            first.append(index)
        others = [index for index in range(len(lines)) if index not in first]
        indexes = {
            *first,
            *_newest_fitting(size, others, max_tokens - max_tokens // FIRST_REQUEST_DIVISOR + room),
        }
    if not indexes:
        return keep_newest_lines("\n".join(lines), counter, max_tokens)
    return "\n".join(lines[index] for index in sorted(indexes))


def _newest_fitting(size: Callable[[int], int], among: Sequence[int], room: int) -> set[int]:
    """Return the last lines that fit."""
    indexes: set[int] = set()
    for index in reversed(among):
        room -= size(index)
        if room < 0:
            break
        indexes.add(index)
    return indexes


def _line_start(line: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return as much of a line's start as fits; the whole line if the start would say too
    little."""
    if counter.count(line + "\n") <= max_tokens:
        return line
    low = 0
    high = len(line) - 1
    while low < high:
        middle = (low + high + 1) // 2
        fits = counter.count(f"{line[:middle]}…\n") <= max_tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return f"{line[:low]}…" if low >= MIN_LINE_START_CHARS else line


def keep_newest_lines(text: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return the last lines of a summary that fit. The oldest content is removed first."""
    newest_first: list[str] = []
    tokens = 0
    for line in reversed(text.splitlines()):
        size = counter.count(line + "\n")
        if tokens + size > max_tokens:
            break
        newest_first.append(line)
        tokens += size
    # A text may count for more than its lines do one by one.
    while len(newest_first) > 1 and counter.count("\n".join(reversed(newest_first))) > max_tokens:
        newest_first.pop()
    last = newest_first[0] if newest_first else next(reversed(text.splitlines()), "")
    if len(newest_first) > 1 or counter.count(last) <= max_tokens:
        return "\n".join(reversed(newest_first or [last]))
    return _keep_newest_words(last, counter, max_tokens)


def _keep_newest_words(line: str, counter: TokenCounter, max_tokens: int) -> str:
    words = line.split(" ")
    low = 0
    high = len(words)
    while low < high:
        middle = (low + high + 1) // 2
        fits = counter.count(" ".join(words[-middle:])) <= max_tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return " ".join(words[len(words) - low :])


def count_part_identifiers(part: Part) -> dict[str, int]:
    """Count the identifiers in all texts of a part."""
    text = extract_text_or_arguments(part) or ""
    return count_identifiers(join_string_values(text) if isinstance(part, ToolCall) else text)


def _message_lines(message: Message) -> list[str]:
    lines: list[str] = []
    for part in message.parts:
        if isinstance(part, Text) and (text := _first_line(part.text)):
            lines.append(f"- {message.speaker}: {text}")
        elif isinstance(part, ToolCall):
            name = collapse_whitespace(part.name)
            lines.append(f"- called {name} {_shorten(part.arguments, 100)}")
        elif isinstance(part, ToolResult) and (text := _first_line(part.text)):
            lines.append(f"- result: {text}")
    return lines


def _first_line(text: str) -> str:
    for line in text[:MAX_READ_CHARS].splitlines():
        if line.strip():
            return _shorten(line.strip(), MAX_LINE_CHARS)
    return ""


def _shorten(text: str, limit: int) -> str:
    text = collapse_whitespace(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
