"""What SQLite refuses, as errors that name their cause."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from trimtab.errors import LogDamaged, StoreError, StoreFull, StoreNotWritable, StoreUnavailable
from trimtab.stores.files.disk import translate_write_errors, write_file_atomically

PROBE_NAME, PROBE_BYTES = "probe", 65_536
"""The file that is written to see whether there is room, and its size."""

_PRIMARY_CODE = 0xFF
"""The bits of an error code that say what it is; the others say more about it."""
_NOT_WRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translate_sqlite_error(error: sqlite3.Error, path: Path) -> StoreError:
    """The store's error for one of SQLite's; nothing was written in either case."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
    if code in _DAMAGED:
        return build_damage_error(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"no space is left to write {path} ({error}); nothing was written: free some and try "
            "again"
        )
    if code in _NOT_WRITABLE:
        return StoreNotWritable(
            f"{path} may not be written to ({error}); nothing was written: make it writable for "
            f"user {os.getuid()}, or give the store another folder"
        )
    if code in _BUSY:
        return StoreUnavailable(
            f"{path} is being written to by another process ({error}); nothing was written: try "
            "again, or end that process"
        )
    if code == sqlite3.SQLITE_IOERR:
        # SQLite tells neither a quota nor a limit from a broken disk; a file of our own can.
        try:
            write_probe_file(path.parent)
        except StoreError as cause:
            return cause
    return StoreUnavailable(
        f"{path} cannot be written ({error}); nothing was written: see to the disk, or give the "
        "store another folder"
    )


def build_damage_error(path: Path, found: str) -> LogDamaged:
    """What to say of a database that is damaged."""
    return LogDamaged(
        f"{path} cannot be read as a database ({found}); restore it from a backup, or move it "
        "away to begin with an empty queue"
    )


def write_probe_file(folder: Path) -> None:
    """Write a file into a folder, and remove it; raises what is in the way."""
    probe = folder / PROBE_NAME
    with translate_write_errors(probe):
        try:
            write_file_atomically(probe, bytes(PROBE_BYTES), fsync=False)
        finally:
            probe.unlink(missing_ok=True)
