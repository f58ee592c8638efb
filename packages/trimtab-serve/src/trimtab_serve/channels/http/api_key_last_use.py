"""When each API key was last used, to the minute: in memory, and in a file beside the key file.

Only `trimtab keys` writes the key file, and it may be mounted read-only, so this is a separate
file. If that is not writable either, the times are in memory and in the metric
`trimtab_api_key_last_used_timestamp_seconds`, until the process ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

from trimtab_serve.metrics.recording import set_api_key_last_used

LAST_USE_FILE_VERSION = 1
SAVE_INTERVAL_S = 60.0
"""Seconds between two writes, however often keys are used."""

log = logging.getLogger("trimtab.http")


class ApiKeyLastUse:
    """The last use of each key of a file."""

    def __init__(self, key_path: Path) -> None:
        self.path = build_last_use_path(key_path)
        """Path of the file."""
        self._last_used: dict[str, float] = {}
        self._unsaved = False
        self._could_save = True

    def record(self, key_name: str) -> None:
        """Record that a key was used now. Nothing is written yet."""
        now = time.time()
        self._last_used[key_name] = now
        self._unsaved = True
        set_api_key_last_used(key_name, now)

    def save(self, known_names: Collection[str]) -> None:
        """Write the new times of known keys.

        Other processes may write the same file. For each key the latest use stays, unless two
        processes write in the same moment.
        """
        if not self._unsaved:
            return
        self._unsaved = False
        used = dict(self._last_used)
        for name, at in read_api_key_last_use(self.path).items():
            used[name] = max(at, used.get(name, 0.0))
        try:
            _replace_file(self.path, {name: at for name, at in used.items() if name in known_names})
        except OSError as error:
            if self._could_save:
                log.warning(
                    "the last use of keys is not stored: %s cannot be written (%s); the metric "
                    "trimtab_api_key_last_used_timestamp_seconds still shows the last use",
                    *(self.path, error.strerror),
                )
            self._could_save = False
        else:
            self._could_save = True


def build_last_use_path(key_path: Path) -> Path:
    """Return the path of the file beside a key file: `keys.last-used.json` beside `keys.json`."""
    return key_path.with_name(f"{key_path.stem}.last-used.json")


def read_api_key_last_use(path: Path) -> Mapping[str, float]:
    """Return seconds since the epoch by key name. Empty if there is no readable file."""
    try:
        data: Any = json.loads(path.read_bytes())
        if data["version"] != LAST_USE_FILE_VERSION:
            return {}
        found = cast("dict[str, Any]", data["last_used"])
        return {name: float(at) for name, at in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


async def save_last_use_regularly(
    last_use: ApiKeyLastUse, known_names: Callable[[], Collection[str]]
) -> None:
    """Save once a minute, and at the end."""
    try:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            await asyncio.to_thread(last_use.save, known_names())
    finally:
        last_use.save(known_names())


def _replace_file(path: Path, last_used: Mapping[str, float]) -> None:
    """Replace the file atomically. It is not synced, because times that a crash loses are recorded
    again."""
    data = {"version": LAST_USE_FILE_VERSION, "last_used": last_used}
    handle, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # is 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        Path(new).replace(path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
