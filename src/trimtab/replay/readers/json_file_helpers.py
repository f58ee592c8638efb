"""Files of JSON, whole or line by line, compressed or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from trimtab.dialects.json_values import dict_or_none, int_or_zero
from trimtab.errors import TrimtabError
from trimtab.log.event import Usage

_GZIP = b"\x1f\x8b"


class UnreadableRecording(TrimtabError, ValueError):
    """A recording is not what it should be."""

    def __init__(self, path: Path, line: int, expected: str) -> None:
        super().__init__(f"{path}, line {line}: {expected}")
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLine:
    number: int
    """In the file, from 1."""
    data: dict[str, Any]
    """The object it holds."""


def load_json_document_unless_lines(path: Path) -> Any:
    """The file's value where it is one JSON document over several lines or an array, else None."""
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
    """The objects of a file, one a line; a torn last line is left out."""
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
    """By what a file's conversation is called: its name, or its folder's for a session's log."""
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    return path.resolve().parent.name if stem == "events" else stem


def parse_iso_timestamp(timestamp: Any) -> float | None:
    """An ISO 8601 time as seconds since the epoch; None where it is none."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if isinstance(timestamp, str) else None
    except ValueError:
        return None


def parse_recorded_usage(usage: Any) -> Usage | None:
    """Usage as Anthropic or OpenAI report it, by the keys it has."""
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
    """What a dialect says of a message; Python's own words for a wrong shape help nobody."""
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
