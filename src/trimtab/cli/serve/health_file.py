"""A file by which a supervisor sees that a process without HTTP is alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

HEALTH_FILE_INTERVAL_S = 5.0
"""Seconds between two touches. Take a process for dead after several of them."""

log = logging.getLogger("trimtab.serve")


async def keep_health_file_fresh(path: Path) -> None:
    """Touch the file for as long as the event loop runs, and remove it at the end."""
    could = True
    try:
        while True:
            could = _try(path.touch, path, quiet=not could)
            await asyncio.sleep(HEALTH_FILE_INTERVAL_S)
    finally:
        _try(lambda: path.unlink(missing_ok=True), path)


def _try(change: Callable[[], None], path: Path, *, quiet: bool = False) -> bool:
    """A disk that is full must not end a server: who looks at the file sees that it is old."""
    try:
        change()
    except OSError as error:
        if not quiet:
            log.warning("the health file %s cannot be changed: %s", path, error.strerror)
        return False
    return True
