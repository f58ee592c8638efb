"""The large texts of one session: one compressed file each, named by its digest."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

from trimtab.errors import LogDamaged
from trimtab.stores.files.disk import fsync_folder, make_private_folder, write_file_atomically
from trimtab.stores.large_texts import compress_text, compute_text_digest, decompress_text

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
