"""Read JSON files, as documents or line by line.

A log may be damaged or hostile: what cannot be read is skipped and told, never held in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.engine.log.event import Usage
from trimtab.errors import TrimtabError

MAX_LINE_CHARS = 64_000_000
"""Maximum length of a line. A longer one is skipped; a picture of 5 MB takes a tenth of it."""
MAX_DOCUMENT_BYTES = 512_000_000
"""Maximum size of a JSON file that is read at once."""
MAX_USAGE_TOKENS = 1_000_000_000
"""Larger counts are not believed."""
READ_ERRORS = (
    AttributeError,
    LookupError,
    OSError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What wrong shapes and files without permission raise."""


class UnreadableRecording(TrimtabError, ValueError):
    """A recording is damaged, or has none of the supported formats."""

    def __init__(self, path: Path, line: int, expected: str) -> None:
        super().__init__(f"{path}, line {line}: {expected}")
        self.path = path
        self.line = line


OnSkipped = Callable[[UnreadableRecording], None]
"""Called for each line or file that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLine:
    number: int
    """Its line number in the file, from 1."""
    data: dict[str, Any]
    """The object on the line."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file to read, and where to tell what cannot be read."""

    path: Path
    """The file."""
    on_skipped: OnSkipped | None = None
    """Called for each line that cannot be read. None to raise instead."""

    def skip(self, line: int, expected: str) -> None:
        """Tell that a line is skipped, or raise."""
        error = UnreadableRecording(self.path, line, expected)
        if self.on_skipped is None:
            raise error
        self.on_skipped(error)

    def load_document_unless_lines(self) -> Any:
        """Load an array, or an object over several lines. Return None if each line is an object."""
        with _open(self.path) as file:
            start = next((text.strip() for _, text in _iter_lines(file) if text.strip()), "")
        if not start or (start[0] == "{" and _parse_json(start) is not None):
            return None
        if start[0] not in "[{":
            raise UnreadableRecording(self.path, 1, "expected JSON")
        if self.path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise UnreadableRecording(
                self.path, 1, f"expected at most {MAX_DOCUMENT_BYTES:,} bytes in one JSON document"
            )
        try:
            with _open(self.path) as file:
                return json.load(file)
        except json.JSONDecodeError as error:
            raise UnreadableRecording(
                self.path, error.lineno, f"expected JSON: {error.msg}"
            ) from error

    def iter_lines(self, *, may_be_growing: bool = True) -> Iterator[JsonLine]:
        """Yield the objects of a file, one per line. An incomplete last line is left out if the
        file may be growing."""
        with _open(self.path) as file:
            for number, text in _iter_lines(file):
                if not text.strip():
                    continue
                value = _parse_json(text) if len(text) < MAX_LINE_CHARS else None
                data = dict_or_none(value)
                if data is not None:
                    yield JsonLine(number=number, data=data)
                elif len(text) >= MAX_LINE_CHARS:
                    self.skip(number, f"expected at most {MAX_LINE_CHARS:,} characters in a line")
                elif value is not None or text.endswith("\n") or not may_be_growing:
                    self.skip(number, "expected a JSON object")


def derive_conversation_id(path: Path) -> str:
    """Return a conversation's id: the file's name, or the folder's name for a session log."""
    stem = path.name.removesuffix(".jsonl").removesuffix(".json")
    return path.resolve().parent.name if stem == "events" else stem


def parse_iso_timestamp(timestamp: Any) -> float | None:
    """Convert an ISO 8601 time to seconds since the epoch. Return None if it is invalid."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if isinstance(timestamp, str) else None
    except (OverflowError, ValueError):
        return None


def parse_millisecond_timestamp(timestamp: Any) -> float | None:
    """Convert milliseconds since the epoch to seconds. Return None if it is no such number."""
    if isinstance(timestamp, int | float) and math.isfinite(timestamp) and timestamp > 0:
        return timestamp / 1_000
    return None


def make_times_monotonic(timestamps: list[float | None]) -> tuple[float, ...] | None:
    """Return times that never decrease. None if there are no times."""
    if not timestamps or timestamps[0] is None:
        return None
    times = [timestamps[0]]
    for stamp in timestamps[1:]:
        times.append(max(times[-1], stamp if stamp is not None else times[-1]))
    return tuple(times)


def parse_recorded_usage(usage: Any) -> Usage | None:
    """Read usage as Anthropic or OpenAI report it. Its keys decide which."""
    data = dict_or_none(usage)
    if data is None or not isinstance(data.get("input_tokens"), int):
        return None
    fresh, output = (count_or_zero(data.get(key)) for key in ("input_tokens", "output_tokens"))
    if "cached_input_tokens" in data:
        cache_read = min(fresh, count_or_zero(data["cached_input_tokens"]))
        return Usage(input=fresh, output=output, cache_read=cache_read)
    read = count_or_zero(data.get("cache_read_input_tokens"))
    write = count_or_zero(data.get("cache_creation_input_tokens"))
    by_lifetime = dict_or_none(data.get("cache_creation")) or {}
    return Usage(
        input=fresh + read + write,
        output=output,
        cache_read=read,
        cache_write=write,
        cache_write_long=min(write, count_or_zero(by_lifetime.get("ephemeral_1h_input_tokens"))),
    )


def count_or_zero(value: Any) -> int:
    """Return a number of tokens, or 0 if it is none that can be believed."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= MAX_USAGE_TOKENS else 0


def format_value_error(error: Exception) -> str:
    """Return a dialect's own explanation. Other Python errors about wrong shapes do not help."""
    return f": {error}" if isinstance(error, ValueError) else ""


def _open(path: Path) -> IO[str]:
    return path.open(encoding="utf-8", errors="replace")


def _iter_lines(file: IO[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers. Of a line that is too long, only the beginning."""
    number = 0
    while text := file.readline(MAX_LINE_CHARS):
        number += 1
        yield number, text
        while len(text) == MAX_LINE_CHARS and not text.endswith("\n"):
            text = file.readline(MAX_LINE_CHARS)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None
