"""SQL of the queue and the schedules by name, and what it takes and gives."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib.resources import files

from trimtab.stores.named_queries import split_named_queries

SQLITE_QUERIES = split_named_queries(
    files("trimtab.server.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
)


def encode_name(text: str) -> bytes:
    """A name, key or reason as it is stored: any text, half of a surrogate pair included."""
    return text.encode("utf-8", "surrogatepass")


def decode_name(stored: bytes) -> str:
    """The inverse of `encode_name`."""
    return stored.decode("utf-8", "surrogatepass")


def encode_list(values: Collection[str] | Collection[int]) -> str:
    """What `json_each` makes rows of."""
    return json.dumps([*values])


def compute_name_range(prefix: str) -> tuple[bytes, bytes]:
    """The range of names that begin so: no byte of UTF-8 is 0xFF."""
    first = encode_name(prefix)
    return first, first + b"\xff"
