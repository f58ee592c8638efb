"""A log of lines in a folder, written by one process: canonical JSON, a line each."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trimtab.core.event import canonical
from trimtab.stores.errors import Damaged
from trimtab.stores.files.disk import (
    NEW,
    make_folder,
    open_file,
    put_file,
    reading,
    sync_folder,
    write_at,
    writing,
)
from trimtab.stores.files.lock import Lock

LOG = "events.jsonl"

_log = logging.getLogger(__name__)


def read(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a log and the bytes they take; what a crash left unfinished is not among them.

    Takes no lock: whoever writes meanwhile adds lines, or puts a whole log in its place.
    """
    with reading(folder):
        try:
            data = (folder / LOG).read_bytes()
        except FileNotFoundError:
            return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    found: list[dict[str, Any]] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise Damaged(
                f"line {number} of {folder / LOG} cannot be read; restore it from a backup, or "
                "take the line out"
            ) from None
    return found, len(whole)


class Journal:
    """The one writer: it holds the folder's lock from construction until `close`."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self.folder = folder
        """Where it is."""
        self._fsync = fsync
        with writing(folder):
            make_folder(folder)
        self._lock = Lock(folder, folder.name)
        try:
            self.records, self._end = read(folder)
            """The lines that were there."""
            self.lines = len(self.records)
            """Lines that are there now."""
            with writing(folder):
                self._repair()
        except BaseException:
            self.close()
            raise

    def append(self, record: dict[str, Any]) -> None:
        """Write a line; when this returns it is durable. A failed write leaves nothing behind."""
        data = f"{canonical(record)}\n".encode()
        with writing(self.folder):
            fd = open_file(self.folder / LOG, os.O_WRONLY | os.O_CREAT)
            try:
                write_at(fd, self._end, data)
                self._sync(fd)
            except BaseException:
                os.ftruncate(fd, self._end)
                raise
            finally:
                os.close(fd)
        self._end += len(data)
        self.lines += 1

    def replace(self, records: Iterable[dict[str, Any]]) -> None:
        """Put a shorter log in place of this one: the whole of it, or the old one stays."""
        lines = [f"{canonical(record)}\n" for record in records]
        data = "".join(lines).encode()
        with writing(self.folder):
            put_file(self.folder / LOG, data, fsync=self._fsync)
        self._end, self.lines = len(data), len(lines)

    def close(self) -> None:
        """Let another process write."""
        self._lock.release()

    def _sync(self, fd: int) -> None:
        if not self._fsync:
            return
        os.fsync(fd)
        if not self._end:
            for folder in (self.folder, self.folder.parent):
                sync_folder(folder)

    def _repair(self) -> None:
        """Cut off what a crash left unfinished: it was never acknowledged."""
        (self.folder / (LOG + NEW)).unlink(missing_ok=True)
        path = self.folder / LOG
        if not path.exists() or (size := path.stat().st_size) == self._end:
            return
        with path.open("r+b") as log:
            log.truncate(self._end)
            os.fsync(log.fileno())
        torn = size - self._end
        _log.warning("%s: %d bytes of an unfinished line were cut off", path, torn)
