"""A log of lines in a folder, written by one process: canonical JSON, a line each."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trimtab.errors import LogDamaged
from trimtab.log.event import dump_canonical_json
from trimtab.stores.files.disk import (
    UNFINISHED_SUFFIX,
    fsync_folder,
    make_private_folder,
    open_private_file,
    translate_read_errors,
    translate_write_errors,
    write_all_at,
    write_file_atomically,
)
from trimtab.stores.files.lock import FolderLock

LOG_FILE_NAME = "events.jsonl"

_log = logging.getLogger(__name__)


def read_jsonl_log(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a log and the bytes they take; what a crash left unfinished is not among them.

    Takes no lock: whoever writes meanwhile adds lines, or puts a whole log in its place.
    """
    with translate_read_errors(folder):
        try:
            data = (folder / LOG_FILE_NAME).read_bytes()
        except FileNotFoundError:
            return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    found: list[dict[str, Any]] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise LogDamaged(
                f"line {number} of {folder / LOG_FILE_NAME} cannot be read; restore it from a "
                "backup, or "
                "take the line out"
            ) from None
    return found, len(whole)


class JsonlLog:
    """The one writer: it holds the folder's lock from construction until `close`."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self.folder = folder
        """Where it is."""
        self._fsync = fsync
        with translate_write_errors(folder):
            make_private_folder(folder)
        self._lock = FolderLock(folder, folder.name)
        try:
            self.records, self._end = read_jsonl_log(folder)
            """The lines that were there."""
            self.lines = len(self.records)
            """Lines that are there now."""
            with translate_write_errors(folder):
                self._repair()
        except BaseException:
            self.close()
            raise

    def append(self, record: dict[str, Any]) -> None:
        """Write a line; when this returns it is durable. A failed write leaves nothing behind."""
        data = f"{dump_canonical_json(record)}\n".encode()
        with translate_write_errors(self.folder):
            fd = open_private_file(self.folder / LOG_FILE_NAME, os.O_WRONLY | os.O_CREAT)
            try:
                write_all_at(fd, self._end, data)
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
        lines = [f"{dump_canonical_json(record)}\n" for record in records]
        data = "".join(lines).encode()
        with translate_write_errors(self.folder):
            write_file_atomically(self.folder / LOG_FILE_NAME, data, fsync=self._fsync)
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
                fsync_folder(folder)

    def _repair(self) -> None:
        """Cut off what a crash left unfinished: it was never acknowledged."""
        (self.folder / (LOG_FILE_NAME + UNFINISHED_SUFFIX)).unlink(missing_ok=True)
        path = self.folder / LOG_FILE_NAME
        if not path.exists() or (size := path.stat().st_size) == self._end:
            return
        with path.open("r+b") as log:
            log.truncate(self._end)
            os.fsync(log.fileno())
        torn = size - self._end
        _log.warning("%s: %d bytes of an unfinished line were cut off", path, torn)
