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
    OPEN_FLAGS,
    fsync_folder,
    make_private_folder,
    open_private_file,
    read_at,
    session_to_folder_name,
    translate_write_errors,
    write_all_at,
)
from trimtab.stores.files.event_lines import encode_event_line_and_blobs, save_blobs
from trimtab.stores.files.index import RecentKeys, SessionIndex, read_recent_keys
from trimtab.stores.files.lock import FolderLock
from trimtab.stores.files.log_file import (
    EMPTY_LOG,
    LOG_FILE,
    LogView,
    advance_log_end,
    mark_batch_lines,
    save_log_end,
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
        self._last = EMPTY_LOG
        self._end = 0
        self._index = SessionIndex(self._folder)
        self._recent_keys = RecentKeys(0, {})
        self._unusable = ""
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
    def recent_keys(self) -> RecentKeys:
        """The keys that the index does not have."""
        return self._recent_keys

    def append(self, events: Sequence[Event], epoch: int | None) -> None:
        if epoch is not None and epoch < self._last.epoch:
            raise StaleOwner(self._session, epoch, self._last.epoch)
        keys = self._admitted(events)
        with translate_write_errors(self._folder):
            lines, data = self._lines(events)
            self._write(b"".join(lines))
            self._taken_in(lines, data)
        self._recent_keys.positions.update(keys)

    def checkpoint(self, snapshot: Snapshot) -> None:
        with translate_write_errors(self._folder):
            if save_snapshot(
                self._folder,
                snapshot,
                self._index,
                self._recent_keys,
                self.position,
                fsync=self._fsync,
            ):
                self._recent_keys = RecentKeys(self.position, {})

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
                    self._index.delete()
                    self._recent_keys = read_recent_keys(view, 0)
                else:
                    self._recent_keys.positions.update(keys)
                delete_unreferenced_data(view, fsync=self._fsync)

    def close(self) -> None:
        self._index.close()
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
        recent = self._recent_keys
        if key in recent.positions or not recent.after:
            return recent.positions.get(key)
        after, positions = self._index.look_up_key(key)
        if after >= recent.after and not positions:
            return None
        with LogView(self._folder) as view:
            return self._index.find_key(view, key, recent)

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
        for line, event in zip(lines, data, strict=True):
            self._last = advance_log_end(self._last, self._end, event)
            self._end += len(line)
        save_log_end(self._folder, self._last)

    def _recover(self) -> None:
        delete_unfinished_files(self._folder)
        if not (self._folder / LOG_FILE).exists():
            # Whatever else is here belongs to no event.
            self._index.delete()
            return
        with LogView(self._folder, verify_last_batch=True) as view:
            self._last = view.last
            self._end = view.end
            if view.size > view.end:
                self._cut(view)
            save_log_end(self._folder, view.last)
            if (self._folder / SWEEP_MARKER_FILE).exists():
                self._index.delete()
                delete_unreferenced_data(view, fsync=self._fsync)
            after, _ = self._index.look_up_key("")
            if after > self.position:
                self._index.delete()
                after = 0
            self._recent_keys = read_recent_keys(view, after)

    def _look_again(self) -> None:
        """Read the end of the log after a rewrite, so that the next append goes there."""
        try:
            with LogView(self._folder) as view:
                self._last = view.last
                self._end = view.end
            save_log_end(self._folder, self._last)
        except (OSError, LogDamaged) as error:
            self._unusable = f"{self._folder / LOG_FILE} cannot be read after a rewrite: {error}"
            raise

    def _cut(self, view: LogView) -> None:
        """Move the bytes after the last whole batch to another file. They were never
        acknowledged."""
        fd = os.open(view.path, os.O_RDWR | OPEN_FLAGS)
        try:
            torn = read_at(fd, view.size - view.end, view.end)
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
