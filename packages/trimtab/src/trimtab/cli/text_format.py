"""Format numbers, times and texts for a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

_AGE_UNITS = (
    ("year", 365 * 86_400),
    ("month", 30 * 86_400),
    ("day", 86_400),
    ("hour", 3_600),
    ("minute", 60),
)
# A tool's output must not move the cursor, recolour the screen or turn the writing around.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def format_age(timestamp: float, now: float | None = None) -> str:
    """Return how long ago something happened."""
    age = (time.time() if now is None else now) - timestamp
    for unit, seconds in _AGE_UNITS:
        if age >= seconds:
            return f"{format_count(int(age // seconds), unit)} ago"
    return "just now"


def format_utc_timestamp(timestamp: float) -> str:
    """Return a time in UTC, to the second."""
    try:
        return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{timestamp:.0f} s"


def format_count(count: int, noun: str) -> str:
    """Return `1 event`, `1,200 events` or `2 replies`."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"


def join_names(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    return " and ".join(
        part for part in (", ".join(names[:-1]), names[-1] if names else "") if part
    )


def escape_control_characters(text: str) -> str:
    """Replace control characters, which a terminal would obey, by visible codes."""
    return _CONTROL.sub(_escaped_character, text.replace("\r\n", "\n"))


def shorten_to_line(text: str, max_chars: int) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(escape_control_characters(text[: 8 * max_chars]).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def wrap_text(text: str, width: int, indent: str = "") -> str:
    """Break lines at spaces and indent continuation lines.

    A longer word stays whole, and a number stays beside its percent sign.
    """
    # Most that is said fits, or goes into a pipe.
    from textwrap import TextWrapper

    wide = max(len(indent) + 20, width)
    lines = TextWrapper(
        wide, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    wrapped = [
        line if len(line) <= wide else lines.fill(line.replace(" %", "\xa0%"))
        for line in text.split("\n")
    ]
    return "\n".join(wrapped).replace("\xa0%", " %")


def wrap_for_terminal(stream: TextIO, text: str, indent: str = "") -> str:
    """Break lines at words for a terminal. A pipe gets the text as it is."""
    if not stream.isatty():
        return text
    from shutil import get_terminal_size

    return wrap_text(text, get_terminal_size().columns, indent)


def _escaped_character(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
