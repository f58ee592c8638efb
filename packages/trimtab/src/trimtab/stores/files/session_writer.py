"""The single writer of a session. It holds the lock and knows the end of the log."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.engine.log.event import Event, Fork, MessageAdded
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import (
    DuplicateIdempotencyKey,
    LogDamaged,
    PositionTaken,
    StaleOwner,
    StoreUnavailable,
)
from trimtab.stores.files.disk import (
    fsync_folder,
    make_private_folder,
    open_private_file,
    session_to_folder_name,
    translate_write_errors,
    write_all_at,
)
from trimtab.stores.files.event_lines import encode_event_line_and_blobs, save_blobs
from trimtab.stores.files.key_index import (
    delete_key_index,
    find_indexed_key_position,
    list_candidate_positions,
    read_last_indexed_position,
    save_keys_to_index,
    scan_log_for_keys,
)
from trimtab.stores.files.lock import FolderLock
from trimtab.stores.files.log_file import (
    ENTRY_BEFORE_FIRST,
    INDEX_ENTRY_BYTES,
    INDEX_FILE,
    LOG_FILE,
    LogView,
    build_next_index_entry,
    mark_batch_lines,
    pack_index_entry,
)
from trimtab.stores.files.log_rewrite import (
    SWEEP_MARKER_FILE,
    TORN_WRITES_FILE,
    delete_unfinished_files,
    delete_unreferenced_data,
    replace_log_file,
)
from trimtab.stores.files.snapshots import save_snapshot

FORKS_FOLDER = "forks"
"""A folder in the parent's folder with an empty file for each fork. It needs no lock."""

_log = logging.getLogger(__name__)


class SessionWriter:
    """The writer of a session, made at its first write. It then repairs what a crash has left.

    Use it from one thread at a time. A failed write leaves the log unchanged. If the log cannot be
    restored, all further writes are refused until the session is opened again.
    """

    def __init__(self, root: Path, session: str, *, fsync: bool) -> None:
        self._root = root
        self._session = session
        self._folder = root / session_to_folder_name(session)
        self._fsync = fsync
        self._last = ENTRY_BEFORE_FIRST
        self._end = 0
        self._keys: dict[str, int] = {}
        self._unusable = ""
        self._reindex = False
        with translate_write_errors(self._folder):
            make_private_folder(self._folder)
        self._lock = FolderLock(self._folder, session)
        try:
            with translate_write_errors(self._folder):
                self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        return self._last.seq

    @property
    def epoch(self) -> int:
        """Epoch of the newest claimed turn."""
        return self._last.epoch

    @property
    def keys(self) -> Mapping[str, int]:
        """Keys of the messages since the last checkpoint."""
        return self._keys

    def append(self, events: Sequence[Event], epoch: int | None) -> None:
        if epoch is not None and epoch < self._last.epoch:
            raise StaleOwner(self._session, epoch, self._last.epoch)
        keys = self._admitted(events)
        with translate_write_errors(self._folder):
            lines, data = self._lines(events)
            self._write(b"".join(lines))
            self._taken_in(lines, data)
        self._keys.update(keys)

    def checkpoint(self, snapshot: Snapshot) -> None:
        with translate_write_errors(self._folder):
            save_keys_to_index(self._folder, self._keys, self.position, fsync=self._fsync)
            self._keys = {}
            save_snapshot(self._folder, snapshot, fsync=self._fsync)

    def rewrite(self, events: Sequence[Event], change: Callable[[Event], Event]) -> None:
        keys = self._admitted(events)
        with translate_write_errors(self._folder):
            lines, _ = self._lines(events)
            try:
                with LogView(self._folder) as view:
                    key_lost = replace_log_file(view, change, lines, fsync=self._fsync)
            finally:
                self._look_again()
            with LogView(self._folder) as view:
                if key_lost:
                    delete_key_index(self._folder)
                    self._keys = scan_log_for_keys(view, 1)
                else:
                    self._keys.update(keys)
                delete_unreferenced_data(view, fsync=self._fsync)

    def close(self) -> None:
        self._lock.release()

    def _admitted(self, events: Sequence[Event]) -> dict[str, int]:
        """Return the keys of events that may be appended."""
        if self._unusable:
            raise StoreUnavailable(self._unusable)
        if events and events[0].seq != self.position + 1:
            raise PositionTaken(self._session, events[0].seq, self.position)
        keys: dict[str, int] = {}
        for seq, event in enumerate(events, self.position + 1):
            if event.seq != seq:
                raise ValueError(
                    f"event {event.seq} of a batch is out of order: event {seq} is expected here"
                )
            if isinstance(event.body, MessageAdded) and event.body.key is not None:
                key = event.body.key
                position = keys.get(key) or self._find_key(key)
                if position is not None:
                    raise DuplicateIdempotencyKey(self._session, key, position)
                keys[key] = seq
        return keys

    def _find_key(self, key: str) -> int | None:
        if key in self._keys or not list_candidate_positions(self._folder, key):
            return self._keys.get(key)
        with LogView(self._folder) as view:
            return find_indexed_key_position(view, key)

    def _lines(self, events: Sequence[Event]) -> tuple[list[bytes], list[Mapping[str, Any]]]:
        """Return the lines of a batch. The blobs that they name are already written."""
        encoded_lines = [encode_event_line_and_blobs(event) for event in events]
        for line in encoded_lines:
            save_blobs(self._folder, line.blobs, fsync=self._fsync)
        forks = [event.body for event in events if isinstance(event.body, Fork)]
        # The newest alone: the others were copied with the parent's past.
        if forks and forks[-1].parent:
            self._tell_parent(forks[-1].parent)
        return mark_batch_lines([line.text for line in encoded_lines]), [
            line.data for line in encoded_lines
        ]

    def _tell_parent(self, parent: str) -> None:
        """Add the fork to its parent's folder before the event is written.

        If the event is never written, the parent notices that when it reads the fork.
        """
        folder = self._root / session_to_folder_name(parent)
        # The parent may be missing, or deleted at this moment. Then nothing is written.
        with contextlib.suppress(FileNotFoundError):
            if (folder / LOG_FILE).exists():
                make_private_folder(folder / FORKS_FOLDER)
                name = folder / FORKS_FOLDER / session_to_folder_name(self._session)
                os.close(open_private_file(name, os.O_WRONLY | os.O_CREAT))
                if self._fsync:
                    fsync_folder(folder / FORKS_FOLDER)
                    fsync_folder(folder)

    def _write(self, data: bytes) -> None:
        path = self._folder / LOG_FILE
        fd = open_private_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            write_all_at(fd, self._end, data)
            if self._fsync:
                os.fsync(fd)
                if not self._end:
                    self._sync_names()
        except BaseException:
            self._undo(fd, path)
            raise
        finally:
            os.close(fd)

    def _sync_names(self) -> None:
        """Make the folders of the log durable. Otherwise the log itself is not."""
        for folder in (self._folder, self._root, self._root.parent):
            fsync_folder(folder)

    def _undo(self, fd: int, path: Path) -> None:
        try:
            os.ftruncate(fd, self._end)
            if self._fsync:
                os.fsync(fd)
        except OSError as error:
            self._unusable = (
                f"a write to {path} failed and could not be undone ({error.strerror}); "
                "release the session and open it again to repair it"
            )

    def _taken_in(self, lines: Sequence[bytes], data: Sequence[Mapping[str, Any]]) -> None:
        """Record that the batch is durable. From here on nothing may fail."""
        entry_count = self._last.seq
        entries = bytearray()
        for line, event in zip(lines, data, strict=True):
            self._last = build_next_index_entry(self._last, self._end, event)
            self._end += len(line)
            entries += pack_index_entry(self._last)
        try:
            if self._reindex:
                with LogView(self._folder) as view:
                    view.write_index()
            else:
                _write_index_entries(
                    self._folder / INDEX_FILE, entry_count * INDEX_ENTRY_BYTES, bytes(entries)
                )
            self._reindex = False
        except OSError:
            # Readers find the missing entries in the log, and the next append tries again.
            self._reindex = True

    def _recover(self) -> None:
        delete_unfinished_files(self._folder)
        if not (self._folder / LOG_FILE).exists():
            # Whatever else is here belongs to no event.
            delete_key_index(self._folder)
            return
        with LogView(self._folder, verify_last_batch=True) as view:
            self._last = view.last
            self._end = view.end
            if view.size > view.end:
                self._cut(view)
            view.write_index()
            if (self._folder / SWEEP_MARKER_FILE).exists():
                delete_key_index(self._folder)
                delete_unreferenced_data(view, fsync=self._fsync)
            if not 0 < read_last_indexed_position(self._folder) <= self.position:
                delete_key_index(self._folder)
            self._keys = scan_log_for_keys(view, read_last_indexed_position(self._folder) + 1)

    def _look_again(self) -> None:
        """Read the end of the log after a rewrite, so that the next append goes there."""
        try:
            with LogView(self._folder) as view:
                self._last = view.last
                self._end = view.end
        except (OSError, LogDamaged) as error:
            self._unusable = f"{self._folder / LOG_FILE} cannot be read after a rewrite: {error}"
            raise

    def _cut(self, view: LogView) -> None:
        """Move the bytes after the last whole batch to another file. They were never
        acknowledged."""
        fd = os.open(view.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            torn = os.pread(fd, view.size - view.end, view.end)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(
                open_private_file(self._folder / TORN_WRITES_FILE, flags), "ab"
            ) as aside:
                aside.write(torn)
                aside.flush()
                os.fsync(aside.fileno())
            os.ftruncate(fd, view.end)
            os.fsync(fd)
        finally:
            os.close(fd)
        _log.warning(
            "%s: %d bytes of an unfinished write after event %d were moved to %s",
            view.path,
            len(torn),
            view.last.seq,
            TORN_WRITES_FILE,
        )


def _write_index_entries(path: Path, offset: int, entries: bytes) -> None:
    fd = open_private_file(path, os.O_WRONLY | os.O_CREAT)
    try:
        write_all_at(fd, offset, entries)
    finally:
        os.close(fd)
