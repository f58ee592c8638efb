"""The large texts of one session, a compressed file each, named by what it says."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

from trimtab.stores.blobs import digest_of, pack, unpack
from trimtab.stores.errors import Damaged
from trimtab.stores.files.disk import make_folder, put_file, sync_folder

BLOBS = "blobs"


def keep_blobs(folder: Path, texts: Mapping[str, str], *, fsync: bool) -> None:
    """Have each text on the disk before an event names it."""
    if not texts:
        return
    blobs = folder / BLOBS
    if not blobs.is_dir():
        make_folder(blobs)
        if fsync:
            sync_folder(folder)
    for digest, text in texts.items():
        path = blobs / digest
        # A file that a crash left unfinished is written again.
        if not path.exists() or _kept(path) != text:
            put_file(path, pack(text), fsync=fsync)
    if fsync:
        # One that was there already may be younger than the last sync of its name.
        sync_folder(blobs)


def fetch_blob(folder: Path, digest: str) -> str:
    """What it says; FileNotFoundError if there is none."""
    path = folder / BLOBS / digest
    text = _kept(path)
    if text is None or digest_of(text) != digest:
        raise Damaged(f"{path} does not hold the text it is named by; restore it from a backup")
    return text


def sweep_blobs(folder: Path, needed: Collection[str], *, fsync: bool) -> None:
    """Remove what no event names."""
    blobs = folder / BLOBS
    if not blobs.is_dir():
        return
    for path in blobs.iterdir():
        if path.name not in needed:
            path.unlink()
    if fsync:
        sync_folder(blobs)


def _kept(path: Path) -> str | None:
    """None where there is nothing whole."""
    try:
        return unpack(path.read_bytes())
    except (zlib.error, UnicodeDecodeError):
        return None
