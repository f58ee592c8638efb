"""Events as lines of a log, with their large texts in separate files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.engine.log.event import Event, event_from_json, event_to_json
from trimtab.errors import LogDamaged
from trimtab.stores.files.blob_files import read_blob
from trimtab.stores.files.log_file import LogView, parse_log_line
from trimtab.stores.large_texts import (
    BLOB_THRESHOLD_BYTES,
    extract_large_texts,
    list_blob_digests,
    restore_large_texts,
)


class BlobMissing(LogDamaged):
    """An event names a text that is missing. A reader may see this while a rewrite removes the
    text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    data: Mapping[str, Any]
    """The event as plain JSON, including large texts."""
    text: bytes
    """The line without its line end."""
    blobs: Mapping[str, str]
    """The texts that the line names, by digest."""


def encode_event_line_and_blobs(event: Event) -> EventLine:
    """Return the event as `dump_event_line` writes it, without texts that are too large for a
    line."""
    data = event_to_json(event)
    blobs = dict[str, str]()
    text = _encode_event_json(data)
    # ASCII is never shorter than UTF-8: a short line has no large text.
    if len(text) > BLOB_THRESHOLD_BYTES:
        small, blobs = extract_large_texts(json.loads(text), BLOB_THRESHOLD_BYTES)
        text = _encode_event_json(small) if blobs else text
    return EventLine(data=data, text=text, blobs=blobs)


def event_from_line(view: LogView, seq: int, line: bytes) -> Event:
    """Return the event of a line that `encode_event_line_and_blobs` wrote."""
    return event_and_size_from_line(view, seq, line)[0]


def event_and_size_from_line(view: LogView, seq: int, line: bytes) -> tuple[Event, int]:
    """Return the event of a line, and the size of the line and of the texts that it names."""
    data = parse_log_line(line)
    if data is None or data.get("seq") != seq:
        raise view.damage_error(seq)
    try:
        texts = {digest: read_blob(view.folder, digest) for digest in list_blob_digests(data)}
    except FileNotFoundError as error:
        raise BlobMissing(
            f"event {seq} of {view.path} names {error.filename}, which is missing; restore "
            "it from a backup"
        ) from error
    size = len(line) + sum(map(len, texts.values()))
    try:
        return event_from_json(restore_large_texts(data, texts)), size
    except (KeyError, TypeError) as error:
        raise view.damage_error(seq) from error


def _encode_event_json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")
