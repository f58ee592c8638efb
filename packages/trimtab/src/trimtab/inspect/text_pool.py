"""The texts of a page: each one stored once, in compressed chunks that the page opens when needed.

A block of a request refers to the texts that it repeats. So the page does not grow by what a call
sends again, and a text that an edit cut is there in full and only once.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MAX_CHUNK_CHARS = 48 * 1024
"""Characters of a chunk before compression. One click decodes only the chunks that it shows."""
COMPRESSION_LEVEL = 6


class TextPool:
    """Texts by number, in the order in which they came."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._number_by_text: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the number of a text. The same text has one number."""
        number = self._number_by_text.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def __getitem__(self, number: int) -> str:
        return self._texts[number]

    def __len__(self) -> int:
        return len(self._texts)

    def chunks(self) -> ItemChunks:
        """Return all texts in chunks."""
        return split_into_chunks(self._texts, len)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChunks:
    """A list of items, compressed piece by piece."""

    first_numbers: tuple[int, ...]
    """The number of the first item in each chunk."""
    payloads: tuple[str, ...]
    """Each chunk: a JSON list, compressed, as Base64."""


def split_into_chunks(items: Iterable[Any], measure: Any) -> ItemChunks:
    """Split items into compressed chunks. `measure` returns the characters of an item."""
    chunks = list(_group_by_size(items, measure))
    first_numbers: list[int] = []
    position = 0
    for chunk in chunks:
        first_numbers.append(position)
        position += len(chunk)
    return ItemChunks(first_numbers=tuple(first_numbers), payloads=tuple(map(pack_json, chunks)))


def pack_json(value: Any) -> str:
    """Return a JSON value compressed, as Base64. Nothing in it can end an element of a page."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), COMPRESSION_LEVEL)).decode()


def unpack_json(payload: str) -> Any:
    """Return the JSON value of `pack_json`."""
    return json.loads(zlib.decompress(base64.b64decode(payload)))


def measure_browser_length(text: str) -> int:
    """Return the length of a text as a browser counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _group_by_size(items: Iterable[Any], measure: Any) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += measure(item)
        if size >= MAX_CHUNK_CHARS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
