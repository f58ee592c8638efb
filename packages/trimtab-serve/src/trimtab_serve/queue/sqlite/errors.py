"""Translate SQLite errors to store errors that name their cause."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from trimtab.errors import LogDamaged, StoreError, StoreFull, StoreNotWritable, StoreUnavailable
from trimtab.stores.files.disk import translate_write_errors, write_file_atomically

PROBE_NAME = "probe"
PROBE_BYTES = 65_536
"""Name and size of the file that is written to check for free space."""

_PRIMARY_CODE = 0xFF
"""The bits of an error code that give its kind. The others give details."""
_NOT_WRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translate_sqlite_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the store error for an SQLite error. In either case, nothing was written."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
    if code in _DAMAGED:
        return build_damage_error(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"no space is left to write {path} ({error}); nothing was written: free some space and "
            "try again"
        )
    if code in _NOT_WRITABLE:
        return StoreNotWritable(
            f"{path} is not writable ({error}); nothing was written: make it writable for "
            f"user {os.getuid()}, or choose another folder for the store"
        )
    if code in _BUSY:
        return StoreUnavailable(
            f"another process is writing to {path} ({error}); nothing was written: try again, or "
            "stop that process"
        )
    if code == sqlite3.SQLITE_IOERR:
        # SQLite reports a quota, a limit and a broken disk in the same way. Writing a file
        # distinguishes them.
        try:
            write_probe_file(path.parent)
        except StoreError as cause:
            return cause
    return StoreUnavailable(
        f"{path} cannot be written ({error}); nothing was written: check the disk, or choose "
        "another folder for the store"
    )


def build_damage_error(path: Path, found: str) -> LogDamaged:
    """Build the error for a damaged database."""
    return LogDamaged(
        f"{path} is not a readable database ({found}); restore it from a backup, or move it away "
        "to start with an empty queue"
    )


def write_probe_file(folder: Path) -> None:
    """Write a file to a folder and delete it. Raises the error that prevents it."""
    probe = folder / PROBE_NAME
    with translate_write_errors(probe):
        try:
            write_file_atomically(probe, bytes(PROBE_BYTES), fsync=False)
        finally:
            probe.unlink(missing_ok=True)
