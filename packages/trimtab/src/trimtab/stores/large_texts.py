"""Store large texts outside their events, once for each content.

An event with a large text has an empty text in its place. Its field `blobs` has the place and the
SHA-256 of the text. No event has its own field of that name, and user content is never at the top
level of an event. So no user content can be mistaken for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

BLOB_THRESHOLD_BYTES = 64 * 1024
"""Maximum UTF-8 bytes of a text inside its event. A longer text is stored outside."""

BLOBS_FIELD = "blobs"


def extract_large_texts(
    event_json: dict[str, Any], threshold_bytes: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the event without texts of more than `threshold_bytes` UTF-8 bytes, and these texts by
    digest.

    `event_json` is not changed. It is returned as it is if no text is that large.
    """
    if BLOBS_FIELD in event_json:
        raise ValueError(
            f"event {event_json.get('seq')} has a field {BLOBS_FIELD!r}, which is "
            "reserved for the store"
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
    """Restore the texts that `extract_large_texts` removed. Raise KeyError for a missing digest."""
    if BLOBS_FIELD not in event_json:
        return event_json
    rest = {key: value for key, value in event_json.items() if key != BLOBS_FIELD}
    places = cast("dict[str, str]", event_json[BLOBS_FIELD])
    return _with_texts_at(
        rest, {pointer: texts_by_digest[digest] for pointer, digest in places.items()}
    )


def list_blob_digests(event_json: Mapping[str, Any]) -> list[str]:
    """Return the digests of all texts that an event needs, each once."""
    return list(dict.fromkeys(cast("dict[str, str]", event_json.get(BLOBS_FIELD, {})).values()))


def compute_text_digest(text: str) -> str:
    """Return the digest under which a text is stored."""
    return sha256(_encode_utf8(text)).hexdigest()


def compress_text(text: str) -> bytes:
    """Return the text as it is stored."""
    return zlib.compress(_encode_utf8(text))


def decompress_text(compressed: bytes) -> str:
    """Return the text that `compress_text` compressed. Raise `zlib.error` for other bytes."""
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
    """Return a copy with other texts at these pointers. Unchanged parts are shared."""
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
    items_by_index = {str(index): item for index, item in enumerate(items)}
    return list(_with_texts_at(items_by_index, texts).values())


def _escape_pointer_key(key: str) -> str:
    """Escape a key for a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
