"""A file that shows a supervisor that a process without HTTP is alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

HEALTH_FILE_INTERVAL_S = 5.0
"""Seconds between two touches. Treat a process as dead after several missed touches."""

log = logging.getLogger("trimtab.serve")


async def keep_health_file_fresh(path: Path) -> None:
    """Touch the file while the event loop runs, and remove it at the end."""
    could = True
    try:
        while True:
            could = _try(path.touch, path, quiet=not could)
            await asyncio.sleep(HEALTH_FILE_INTERVAL_S)
    finally:
        _try(lambda: path.unlink(missing_ok=True), path)


def _try(change: Callable[[], None], path: Path, *, quiet: bool = False) -> bool:
    """Change the file, and log a failure. A full disk must not stop the server."""
    try:
        change()
    except OSError as error:
        if not quiet:
            log.warning("the health file %s cannot be changed: %s", path, error.strerror)
        return False
    return True
