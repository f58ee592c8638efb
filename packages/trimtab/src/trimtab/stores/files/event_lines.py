"""Events as lines of a log, with their large texts in separate files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.engine.log.event import Event, event_from_json, event_to_json
from trimtab.errors import LogDamaged
from trimtab.stores.files.disk import fsync_folder, make_private_folder, write_file_atomically
from trimtab.stores.files.log_file import LogView, parse_log_line
from trimtab.stores.large_texts import (
    BLOB_THRESHOLD_BYTES,
    compress_text,
    compute_text_digest,
    decompress_text,
    extract_large_texts,
    list_blob_digests,
    restore_large_texts,
)

BLOBS_FOLDER = "blobs"


def save_blobs(folder: Path, texts_by_digest: Mapping[str, str], *, fsync: bool) -> None:
    """Write each text to the disk before an event names it."""
    if not texts_by_digest:
        return
    blobs = folder / BLOBS_FOLDER
    if not blobs.is_dir():
        make_private_folder(blobs)
        if fsync:
            fsync_folder(folder)
    for digest, text in texts_by_digest.items():
        path = blobs / digest
        # A file that a crash left unfinished is written again.
        if not path.exists() or _read_blob_file(path) != text:
            write_file_atomically(path, compress_text(text), fsync=fsync)
    if fsync:
        # One that was there already may be younger than the last sync of its name.
        fsync_folder(blobs)


def read_blob(folder: Path, digest: str) -> str:
    """Return the text; FileNotFoundError if there is none."""
    path = folder / BLOBS_FOLDER / digest
    text = _read_blob_file(path)
    if text is None or compute_text_digest(text) != digest:
        raise LogDamaged(
            f"{path} does not contain the text that its name stands for; restore it from a backup"
        )
    return text


def delete_unneeded_blobs(folder: Path, needed_digests: Collection[str], *, fsync: bool) -> None:
    """Remove blobs that no event names."""
    blobs = folder / BLOBS_FOLDER
    if not blobs.is_dir():
        return
    for path in blobs.iterdir():
        if path.name not in needed_digests:
            path.unlink()
    if fsync:
        fsync_folder(blobs)


def _read_blob_file(path: Path) -> str | None:
    """Return the text; None if the file is incomplete."""
    try:
        return decompress_text(path.read_bytes())
    except (zlib.error, UnicodeDecodeError):
        return None


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
        event = event_from_json(restore_large_texts(data, texts))
    except (AttributeError, LookupError, TypeError) as error:
        raise view.damage_error(seq) from error
    if type(event.at) not in (int, float):
        raise view.damage_error(seq)
    return event, size


def _encode_event_json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")
