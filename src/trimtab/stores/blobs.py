"""Large texts outside of the events that say them: kept once, by what they say.

An event that says a large text keeps an empty one in its place and, under `blobs`, where it stood
and the SHA-256 of what stood there. No event has a field of that name, and what a user writes is
never at the top of an event, so nothing said can be taken for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

THRESHOLD = 64 * 1024
"""Bytes of UTF-8; a text over it lives outside of its event."""

FIELD = "blobs"


def externalise(data: dict[str, Any], threshold: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The event without its texts over `threshold` bytes of UTF-8, and these texts by digest.

    `data` is an event as `json.loads` gives it; it stays as it is, and is what comes back where no
    text is that large.
    """
    if FIELD in data:
        raise ValueError(f"event {data.get('seq')} has a field {FIELD!r}, which is the store's own")
    places: dict[str, str] = {}
    texts: dict[str, str] = {}
    for pointer, text in _large(data, "", threshold):
        digest = digest_of(text)
        places[pointer] = digest
        texts[digest] = text
    if not places:
        return data, {}
    return {**_replaced(data, dict.fromkeys(places, "")), FIELD: places}, texts


def inline(data: dict[str, Any], blobs: Mapping[str, str]) -> dict[str, Any]:
    """The inverse of `externalise`; a digest that `blobs` lacks is a KeyError."""
    if FIELD not in data:
        return data
    rest = {key: value for key, value in data.items() if key != FIELD}
    places = cast("dict[str, str]", data[FIELD])
    return _replaced(rest, {pointer: blobs[digest] for pointer, digest in places.items()})


def digests(data: Mapping[str, Any]) -> list[str]:
    """What an event needs to be whole, each digest once."""
    return list(dict.fromkeys(cast("dict[str, str]", data.get(FIELD, {})).values()))


def digest_of(text: str) -> str:
    """By what a text is kept."""
    return sha256(_encoded(text)).hexdigest()


def pack(text: str) -> bytes:
    """The text as it is stored."""
    return zlib.compress(_encoded(text))


def unpack(stored: bytes) -> str:
    """The inverse of `pack`; `zlib.error` if it is not one."""
    return zlib.decompress(stored).decode("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    # JSON can say half of a surrogate pair; strict UTF-8 cannot.
    return text.encode("utf-8", "surrogatepass")


def _large(value: Any, pointer: str, threshold: int) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            if len(value) * 4 > threshold and len(_encoded(value)) > threshold:
                yield pointer, value
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                yield from _large(item, f"{pointer}/{_escaped(key)}", threshold)
        case list() | tuple():
            for index, item in enumerate(cast("list[Any]", value)):
                yield from _large(item, f"{pointer}/{index}", threshold)
        case _:
            pass


def _replaced(data: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """A copy with other texts at these pointers; what lies on no way to one is shared."""
    below: dict[str, dict[str, str]] = {}
    for pointer, text in texts.items():
        first, more, rest = pointer[1:].partition("/")
        below.setdefault(first, {})[f"/{rest}" if more else ""] = text
    return {
        key: _put(value, below[_escaped(key)]) if _escaped(key) in below else value
        for key, value in data.items()
    }


def _put(value: Any, texts: dict[str, str]) -> Any:
    if "" in texts:
        return texts[""]
    if isinstance(value, dict):
        return _replaced(cast("dict[str, Any]", value), texts)
    items = cast("list[Any]", value)
    numbered = {str(index): item for index, item in enumerate(items)}
    return list(_replaced(numbered, texts).values())


def _escaped(key: str) -> str:
    """A key as a JSON pointer says it."""
    return key.replace("~", "~0").replace("/", "~1")
