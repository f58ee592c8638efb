"""Whether sessions can be kept where the file says."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from trimtab.cli.doctor.finding import Finding, bad, ok, warn
from trimtab.stores.choose import is_database, open_store
from trimtab.stores.errors import NotMigrated, StoreError

PATIENCE = 15.0
"""Seconds that a database may take."""
LITTLE = 500_000_000
"""Bytes of free space below which it is worth a word."""


async def place(store: str) -> Finding:
    """One that is written to and read from."""
    return await _database(store) if is_database(store) else _folder(Path(store))


async def _database(store: str) -> Finding:
    try:
        async with asyncio.timeout(PATIENCE):
            opened = await open_store(store)
            try:
                await opened.sessions(limit=1)
            finally:
                await opened.close()
    except TimeoutError:
        told = f"the database did not answer within {PATIENCE:g} seconds"
        return bad("store", told, "check its address in session.store, and that it runs")
    except NotMigrated as error:
        return bad("store", str(error), "trimtab migrate --database …")
    except (StoreError, ValueError) as error:
        return bad("store", str(error), "check its address in session.store, and that it runs")
    return ok("store", "the database answers, and is of this release")


def _folder(path: Path) -> Finding:
    there = path
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        return bad("store", f"{there} is no folder", "set session.store to another place")
    try:
        # Permissions say less than an attempt: a disk may be read-only, or full.
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"trimtab")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(there).free
    except OSError as error:
        return bad(
            "store",
            f"{there} cannot be written to: {error.strerror or error}",
            "give yourself write access, or set session.store to another place",
        )
    told = f"{path} {'is' if path.exists() else 'will be'} writable, {free / 1e9:,.1f} GB free"
    if free < LITTLE:
        return warn("store", told, "free some space: a session that cannot be kept stops")
    return ok("store", told if path.exists() else f"{path} will be made, {free / 1e9:,.1f} GB free")
