"""SQL of the queue and the schedules by name, and the encoding of its values."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib.resources import files

from trimtab.stores.named_queries import split_named_queries

SQLITE_QUERIES = split_named_queries(
    files("trimtab_serve.queue.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
)


def encode_name(text: str) -> bytes:
    """Encode a name, key or reason for storage. Any text works, even half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def decode_name(stored: bytes) -> str:
    """Decode what `encode_name` returned."""
    return stored.decode("utf-8", "surrogatepass")


def encode_list(values: Collection[str] | Collection[int]) -> str:
    """Encode a list for `json_each`."""
    return json.dumps([*values])


def compute_name_range(prefix: str) -> tuple[bytes, bytes]:
    """Return the range of names with a prefix. No byte of UTF-8 is 0xFF."""
    first = encode_name(prefix)
    return first, first + b"\xff"
