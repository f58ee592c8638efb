"""The log of a mail on files: `mail.jsonl`, a record a line, written by one process.

The lines of one write are one batch, marked as in a session's log: all but its last end in a space,
all but its first begin with one. A batch that a crash cut short was never acknowledged and is cut
off when the log is opened.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trimtab.stores.errors import Damaged, SessionBusy, StoreUnavailable
from trimtab.stores.files.disk import (
    NEW,
    make_folder,
    open_file,
    put_file,
    sync_folder,
    write_at,
    writing,
)
from trimtab.stores.files.lock import Lock, held_by
from trimtab.stores.files.log import batch, parsed
from trimtab.worker.records import Record, checked

FOLDER = ".mail"
"""Beside the sessions; no session's folder begins with a dot."""
LOG = "mail.jsonl"

_log = logging.getLogger("trimtab.worker")


class MailBusy(SessionBusy):
    """Another process serves from this folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        """Its process number, as far as it is known."""
        super().__init__(
            f"{folder} is served by process {holder}; one process at a time may serve from a "
            "folder: end that one, or keep sessions in PostgreSQL to serve with many"
        )


class MailLog:
    """Held from construction until `close`; one thread at a time.

    Every record that is there is handed to `found`, with the bytes it takes.
    """

    def __init__(self, root: Path, found: Callable[[Record, int], None], *, fsync: bool) -> None:
        self._folder = root / FOLDER
        self._path = self._folder / LOG
        self._fsync = fsync
        self._unusable = ""
        self.size = 0
        """Bytes of the log."""
        with writing(self._folder):
            make_folder(self._folder)
        try:
            self._lock = Lock(self._folder, FOLDER)
        except SessionBusy:
            raise MailBusy(root, held_by(self._folder) or "unknown") from None
        try:
            with writing(self._path):
                self._path.with_name(LOG + NEW).unlink(missing_ok=True)
                self._fd = self._opened()
                if self._fsync:
                    for folder in (self._folder, root):
                        sync_folder(folder)
            self._recover(found)
        except BaseException:
            self._lock.release()
            raise

    def append(self, lines: Sequence[bytes]) -> None:
        """All of these lines or none; they are durable when this returns."""
        if self._unusable:
            raise StoreUnavailable(self._unusable)
        data = b"".join(batch(lines))
        with writing(self._path):
            try:
                write_at(self._fd, self.size, data)
                if self._fsync:
                    os.fdatasync(self._fd)
            except BaseException:
                self._undo()
                raise
        self.size += len(data)

    def replace(self, lines: Iterable[bytes]) -> None:
        """Let the log be these lines alone; after a crash it is this one or the one before."""
        data = b"".join(line + b"\n" for line in lines)
        with writing(self._path):
            try:
                put_file(self._path, data, fsync=self._fsync)
            finally:
                self._follow()

    def close(self) -> None:
        """Leave the folder to another process."""
        os.close(self._fd)
        self._lock.release()

    def _follow(self) -> None:
        """Go on with the file that has the name now: what is written to another one is lost."""
        try:
            fd = self._opened()
        except OSError as error:
            self._unusable = f"{self._path} cannot be opened ({error.strerror}); start again"
            raise
        os.close(self._fd)
        self._fd, self.size = fd, os.fstat(fd).st_size

    def _opened(self) -> int:
        return open_file(self._path, os.O_RDWR | os.O_CREAT)

    def _undo(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError as error:
            self._unusable = (
                f"a write to {self._path} failed and could not be undone ({error.strerror}); see "
                "to the disk and start again: it is repaired then"
            )

    def _recover(self, found: Callable[[Record, int], None]) -> None:
        """Read what is there; what stands behind the last whole batch goes."""
        with self._path.open("rb") as file:
            group: list[tuple[Record, int]] = []
            end = at = 0
            for line in file:
                record = _read(line)
                begins = not line.startswith(b" ")
                if record is None or begins != (not group):
                    break
                at += len(line)
                group.append((record, len(line)))
                if not line.endswith(b" \n"):
                    for each, size in group:
                        found(each, size)
                    group, end = [], at
            size = os.fstat(file.fileno()).st_size
            self._whole_behind(end, at)
        self.size = end
        if size > end:
            with writing(self._path):
                os.ftruncate(self._fd, end)
                os.fsync(self._fd)
            _log.warning("%s: %d bytes of an unfinished write were cut off", self._path, size - end)

    def _whole_behind(self, end: int, broken: int) -> None:
        """A batch that was followed by another had been acknowledged: it must not be cut off."""
        with self._path.open("rb") as file:
            file.seek(broken)
            for line in file:
                if not line.startswith(b" ") and _read(line) is not None:
                    raise Damaged(
                        f"{self._path} cannot be read behind byte {end}, and whole records follow; "
                        "restore it, or move it away to begin with an empty mail"
                    )


def _read(line: bytes) -> Record | None:
    """None for what is not one whole line."""
    found = parsed(line)
    return checked(found) if found is not None else None
