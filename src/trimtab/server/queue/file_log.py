"""The log of a queue on files: `mail.jsonl`, a record a line, written by one process.

The lines of one write are one batch, marked as in a session's log: all but its last end in a space,
all but its first begin with one. A batch that a crash cut short was never acknowledged and is cut
off when the log is opened.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trimtab.errors import LogDamaged, SessionLockedByOtherProcess, StoreUnavailable
from trimtab.server.queue.inbound_outbound import QueueRecord, check_queue_record_version
from trimtab.stores.files.disk import (
    UNFINISHED_SUFFIX,
    fsync_folder,
    make_private_folder,
    open_private_file,
    translate_write_errors,
    write_all_at,
    write_file_atomically,
)
from trimtab.stores.files.lock import FolderLock, find_lock_holder
from trimtab.stores.files.log_file import mark_batch_lines, parse_log_line

QUEUE_FOLDER = ".mail"
"""Beside the sessions; no session's folder begins with a dot."""
QUEUE_LOG_NAME = "mail.jsonl"
PROBE_NAME, PROBE_BYTES = "probe", 65_536
"""The file that is written to see whether there is room, and its size."""

_log = logging.getLogger("trimtab.server")


class QueueInUse(SessionLockedByOtherProcess):
    """Another process serves from this folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        """Its process number, as far as it is known."""
        super().__init__(
            f"{folder} is served by process {holder}; one process at a time may serve from a "
            "folder: end that one, or keep sessions in PostgreSQL to serve with many"
        )


class FileQueueLog:
    """Held from construction until `close`; one thread at a time.

    Every record that is there is handed to `found`, with the bytes it takes.
    """

    def __init__(
        self, root: Path, on_record: Callable[[QueueRecord, int], None], *, fsync: bool
    ) -> None:
        self._folder = root / QUEUE_FOLDER
        self._path = self._folder / QUEUE_LOG_NAME
        self._fsync = fsync
        self._unusable = ""
        self.size = 0
        """Bytes of the log."""
        with translate_write_errors(self._folder):
            make_private_folder(self._folder)
        try:
            self._lock = FolderLock(self._folder, QUEUE_FOLDER)
        except SessionLockedByOtherProcess:
            raise QueueInUse(root, find_lock_holder(self._folder) or "unknown") from None
        try:
            with translate_write_errors(self._path):
                self._path.with_name(QUEUE_LOG_NAME + UNFINISHED_SUFFIX).unlink(missing_ok=True)
                self._fd = self._open_file()
                if self._fsync:
                    for folder in (self._folder, root):
                        fsync_folder(folder)
            self._recover(on_record)
        except BaseException:
            self._lock.release()
            raise

    def append(self, lines: Sequence[bytes]) -> None:
        """All of these lines or none; they are durable when this returns."""
        if self._unusable:
            raise StoreUnavailable(self._unusable)
        data = b"".join(mark_batch_lines(lines))
        with translate_write_errors(self._path):
            try:
                write_all_at(self._fd, self.size, data)
                if self._fsync:
                    os.fdatasync(self._fd)
            except BaseException:
                self._undo_write()
                raise
        self.size += len(data)

    def replace(self, lines: Iterable[bytes]) -> None:
        """Let the log be these lines alone; after a crash it is this one or the one before."""
        data = b"".join(line + b"\n" for line in lines)
        with translate_write_errors(self._path):
            try:
                write_file_atomically(self._path, data, fsync=self._fsync)
            finally:
                self._reopen_file()

    def check_writable(self) -> None:
        """Write a file beside the log, and remove it; raises what is in the way."""
        if self._unusable:
            raise StoreUnavailable(self._unusable)
        probe = self._folder / PROBE_NAME
        with translate_write_errors(probe):
            try:
                write_file_atomically(probe, bytes(PROBE_BYTES), fsync=False)
            finally:
                probe.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the folder to another process."""
        os.close(self._fd)
        self._lock.release()

    def _reopen_file(self) -> None:
        """Go on with the file that has the name now: what is written to another one is lost."""
        try:
            fd = self._open_file()
        except OSError as error:
            self._unusable = f"{self._path} cannot be opened ({error.strerror}); start again"
            raise
        os.close(self._fd)
        self._fd, self.size = fd, os.fstat(fd).st_size

    def _open_file(self) -> int:
        return open_private_file(self._path, os.O_RDWR | os.O_CREAT)

    def _undo_write(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError as error:
            self._unusable = (
                f"a write to {self._path} failed and could not be undone ({error.strerror}); see "
                "to the disk and start again: it is repaired then"
            )

    def _recover(self, on_record: Callable[[QueueRecord, int], None]) -> None:
        """Read what is there; what stands behind the last whole batch goes."""
        with self._path.open("rb") as file:
            group: list[tuple[QueueRecord, int]] = []
            end = at = 0
            for line in file:
                record = _parse_record_line(line)
                begins = not line.startswith(b" ")
                if record is None or begins != (not group):
                    break
                at += len(line)
                group.append((record, len(line)))
                if not line.endswith(b" \n"):
                    for each, size in group:
                        on_record(each, size)
                    group, end = [], at
            size = os.fstat(file.fileno()).st_size
            self._refuse_records_after(end, at)
        self.size = end
        if size > end:
            with translate_write_errors(self._path):
                os.ftruncate(self._fd, end)
                os.fsync(self._fd)
            _log.warning("%s: %d bytes of an unfinished write were cut off", self._path, size - end)

    def _refuse_records_after(self, end: int, start: int) -> None:
        """A batch that was followed by another had been acknowledged: it must not be cut off."""
        with self._path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.startswith(b" ") and _parse_record_line(line) is not None:
                    raise LogDamaged(
                        f"{self._path} cannot be read behind byte {end}, and whole records follow; "
                        "restore it, or move it away to begin with an empty queue"
                    )


def _parse_record_line(line: bytes) -> QueueRecord | None:
    """None for what is not one whole line."""
    found = parse_log_line(line)
    return check_queue_record_version(found) if found is not None else None
