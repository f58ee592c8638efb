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

BLOB_THRESHOLD_BYTES = 64 * 1024
"""Bytes of UTF-8; a text over it lives outside of its event."""

BLOBS_FIELD = "blobs"


def extract_large_texts(
    event_json: dict[str, Any], threshold_bytes: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """The event without its texts over `threshold_bytes` bytes of UTF-8, and these texts by digest.

    `data` is an event as `json.loads` gives it; it stays as it is, and is what comes back where no
    text is that large.
    """
    if BLOBS_FIELD in event_json:
        raise ValueError(
            f"event {event_json.get('seq')} has a field {BLOBS_FIELD!r}, which is the store's own"
        )
    places: dict[str, str] = {}
    texts: dict[str, str] = {}
    for pointer, text in _find_large_texts(event_json, "", threshold_bytes):
        digest = compute_text_digest(text)
        places[pointer] = digest
        texts[digest] = text
    if not places:
        return event_json, {}
    return {**_with_texts_at(event_json, dict.fromkeys(places, "")), BLOBS_FIELD: places}, texts


def restore_large_texts(
    event_json: dict[str, Any], texts_by_digest: Mapping[str, str]
) -> dict[str, Any]:
    """The inverse of `extract_large_texts`; a digest that `blobs` lacks is a KeyError."""
    if BLOBS_FIELD not in event_json:
        return event_json
    rest = {key: value for key, value in event_json.items() if key != BLOBS_FIELD}
    places = cast("dict[str, str]", event_json[BLOBS_FIELD])
    return _with_texts_at(
        rest, {pointer: texts_by_digest[digest] for pointer, digest in places.items()}
    )


def list_blob_digests(event_json: Mapping[str, Any]) -> list[str]:
    """What an event needs to be whole, each digest once."""
    return list(dict.fromkeys(cast("dict[str, str]", event_json.get(BLOBS_FIELD, {})).values()))


def compute_text_digest(text: str) -> str:
    """By what a text is kept."""
    return sha256(_encode_utf8(text)).hexdigest()


def compress_text(text: str) -> bytes:
    """The text as it is stored."""
    return zlib.compress(_encode_utf8(text))


def decompress_text(compressed: bytes) -> str:
    """The inverse of `pack`; `zlib.error` if it is not one."""
    return zlib.decompress(compressed).decode("utf-8", "surrogatepass")


def _encode_utf8(text: str) -> bytes:
    # JSON can say half of a surrogate pair; strict UTF-8 cannot.
    return text.encode("utf-8", "surrogatepass")


def _find_large_texts(value: Any, pointer: str, threshold_bytes: int) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            if len(value) * 4 > threshold_bytes and len(_encode_utf8(value)) > threshold_bytes:
                yield pointer, value
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                yield from _find_large_texts(
                    item, f"{pointer}/{_escape_pointer_key(key)}", threshold_bytes
                )
        case list() | tuple():
            for index, item in enumerate(cast("list[Any]", value)):
                yield from _find_large_texts(item, f"{pointer}/{index}", threshold_bytes)
        case _:
            pass


def _with_texts_at(data: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """A copy with other texts at these pointers; what lies on no way to one is shared."""
    below: dict[str, dict[str, str]] = {}
    for pointer, text in texts.items():
        first, more, rest = pointer[1:].partition("/")
        below.setdefault(first, {})[f"/{rest}" if more else ""] = text
    return {
        key: _with_texts_below(value, below[_escape_pointer_key(key)])
        if _escape_pointer_key(key) in below
        else value
        for key, value in data.items()
    }


def _with_texts_below(value: Any, texts: dict[str, str]) -> Any:
    if "" in texts:
        return texts[""]
    if isinstance(value, dict):
        return _with_texts_at(cast("dict[str, Any]", value), texts)
    items = cast("list[Any]", value)
    numbered = {str(index): item for index, item in enumerate(items)}
    return list(_with_texts_at(numbered, texts).values())


def _escape_pointer_key(key: str) -> str:
    """A key as a JSON pointer says it."""
    return key.replace("~", "~0").replace("/", "~1")
