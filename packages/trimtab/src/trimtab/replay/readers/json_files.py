"""Read JSON files, as documents or line by line, compressed or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from trimtab.dialects.json_values import dict_or_none, int_or_zero
from trimtab.engine.log.event import Usage
from trimtab.errors import TrimtabError

_GZIP = b"\x1f\x8b"


class UnreadableRecording(TrimtabError, ValueError):
    """A recording is damaged, or has none of the supported formats."""

    def __init__(self, path: Path, line: int, expected: str) -> None:
        super().__init__(f"{path}, line {line}: {expected}")
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLine:
    number: int
    """Its line number in the file, from 1."""
    data: dict[str, Any]
    """The object on the line."""


def load_json_document_unless_lines(path: Path) -> Any:
    """Load an array, or an object over several lines. Return None if each line is an object."""
    with _open(path) as file:
        start = _first_line(file)
    if not start or (start[0] == "{" and _parse_json(start) is not None):
        return None
    if start[0] not in "[{":
        raise UnreadableRecording(path, 1, f"expected JSON, found {start[:40]!r}")
    try:
        with _open(path) as file:
            return json.load(file)
    except json.JSONDecodeError as error:
        raise UnreadableRecording(path, error.lineno, f"expected JSON: {error.msg}") from error


def iter_json_lines(path: Path) -> Iterator[JsonLine]:
    """Yield the objects of a file, one per line. An incomplete last line is left out."""
    with _open(path) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            value = _parse_json(text)
            data = dict_or_none(value)
            if data is not None:
                yield JsonLine(number=number, data=data)
            elif value is not None or text.endswith("\n"):
                raise UnreadableRecording(
                    path, number, f"expected a JSON object, found {text[:40]!r}"
                )


def derive_conversation_id(path: Path) -> str:
    """Return a conversation's id: the file's name, or the folder's name for a session log."""
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    return path.resolve().parent.name if stem == "events" else stem


def parse_iso_timestamp(timestamp: Any) -> float | None:
    """Convert an ISO 8601 time to seconds since the epoch. Return None if it is invalid."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if isinstance(timestamp, str) else None
    except ValueError:
        return None


def parse_recorded_usage(usage: Any) -> Usage | None:
    """Read usage as Anthropic or OpenAI report it. Its keys decide which."""
    data = dict_or_none(usage)
    if data is None or not isinstance(data.get("input_tokens"), int):
        return None
    fresh, output = int_or_zero(data["input_tokens"]), int_or_zero(data.get("output_tokens"))
    if "cached_input_tokens" in data:
        cached = int_or_zero(data["cached_input_tokens"])
        return Usage(input=fresh, output=output, cache_read=cached)
    read = int_or_zero(data.get("cache_read_input_tokens"))
    write = int_or_zero(data.get("cache_creation_input_tokens"))
    return Usage(input=fresh + read + write, output=output, cache_read=read, cache_write=write)


def format_value_error(error: Exception) -> str:
    """Return a dialect's own explanation. Other Python errors about wrong shapes do not help."""
    return f": {error}" if isinstance(error, ValueError) else ""


def _open(path: Path) -> IO[str]:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    if packed:
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _first_line(file: IO[str]) -> str:
    return next((text.strip() for text in file if text.strip()), "")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
