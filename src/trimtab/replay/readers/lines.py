"""Files of JSON, whole or line by line, compressed or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from trimtab.core.event import Usage
from trimtab.dialects.shapes import as_dict, as_int

_GZIP = b"\x1f\x8b"


class Unreadable(ValueError):
    """A recording is not what it should be."""

    def __init__(self, path: Path, line: int, expected: str) -> None:
        super().__init__(f"{path}, line {line}: {expected}")
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    number: int
    """In the file, from 1."""
    data: dict[str, Any]
    """The object it holds."""


def whole(path: Path) -> Any:
    """The file's value where it is one JSON document over several lines or an array, else None."""
    with _open(path) as file:
        start = _first_line(file)
    if not start or (start[0] == "{" and _parsed(start) is not None):
        return None
    if start[0] not in "[{":
        raise Unreadable(path, 1, f"expected JSON, found {start[:40]!r}")
    try:
        with _open(path) as file:
            return json.load(file)
    except json.JSONDecodeError as error:
        raise Unreadable(path, error.lineno, f"expected JSON: {error.msg}") from error


def lines_of(path: Path) -> Iterator[Line]:
    """The objects of a file, one a line; a torn last line is left out."""
    with _open(path) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            value = _parsed(text)
            data = as_dict(value)
            if data is not None:
                yield Line(number=number, data=data)
            elif value is not None or text.endswith("\n"):
                raise Unreadable(path, number, f"expected a JSON object, found {text[:40]!r}")


def name_of(path: Path) -> str:
    """By what a file's conversation is called: its name, or its folder's for a session's log."""
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    return path.resolve().parent.name if stem == "events" else stem


def seconds(stamp: Any) -> float | None:
    """An ISO 8601 time as seconds since the epoch; None where it is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else None
    except ValueError:
        return None


def usage_of(wire: Any) -> Usage | None:
    """Usage as Anthropic or OpenAI report it, by the keys it has."""
    data = as_dict(wire)
    if data is None or not isinstance(data.get("input_tokens"), int):
        return None
    fresh, output = as_int(data["input_tokens"]), as_int(data.get("output_tokens"))
    if "cached_input_tokens" in data:
        cached = as_int(data["cached_input_tokens"])
        return Usage(input=fresh, output=output, cache_read=cached)
    read = as_int(data.get("cache_read_input_tokens"))
    write = as_int(data.get("cache_creation_input_tokens"))
    return Usage(input=fresh + read + write, output=output, cache_read=read, cache_write=write)


def why(error: Exception) -> str:
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


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
