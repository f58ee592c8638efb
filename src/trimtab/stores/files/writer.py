"""The one writer of a session: it holds the lock, and knows where the log stands."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.core.event import Event, Fork, Said
from trimtab.core.snapshot import Snapshot
from trimtab.stores.errors import Damaged, KeyTaken, PositionTaken, StaleOwner, StoreUnavailable
from trimtab.stores.files.blobs import keep_blobs
from trimtab.stores.files.disk import (
    folder_name,
    make_folder,
    open_file,
    sync_folder,
    write_at,
    writing,
)
from trimtab.stores.files.events import to_line
from trimtab.stores.files.keys import (
    drop_keys,
    find_key,
    keep_keys,
    key_candidates,
    keyed_upto,
    keys_in,
)
from trimtab.stores.files.lock import Lock
from trimtab.stores.files.log import (
    ENTRY,
    INDEX,
    LOG,
    NONE,
    LogView,
    batch,
    next_entry,
    pack_entry,
)
from trimtab.stores.files.rewrite import MARKER, TORN, drop_unfinished, rewrite_log, swept
from trimtab.stores.files.snapshots import keep_snapshot

FORKS = "forks"
"""A folder in the parent's with an empty file for each fork, so that no lock is needed."""

_log = logging.getLogger(__name__)


class Writer:
    """Made at the first write to a session; what a crash has left is repaired then.

    One thread at a time. After a failed write the log is as it was before it; if not even that can
    be had, all further ones are refused until the session is opened again.
    """

    def __init__(self, root: Path, session: str, *, fsync: bool) -> None:
        self._root = root
        self._session = session
        self._folder = root / folder_name(session)
        self._fsync = fsync
        self._last = NONE
        self._end = 0
        self._keys: dict[str, int] = {}
        self._unusable = ""
        self._reindex = False
        with writing(self._folder):
            make_folder(self._folder)
        self._lock = Lock(self._folder, session)
        try:
            with writing(self._folder):
                self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        return self._last.seq

    @property
    def epoch(self) -> int:
        """The newest claimed turn's."""
        return self._last.epoch

    @property
    def keys(self) -> Mapping[str, int]:
        """Of the messages that came since the last checkpoint."""
        return self._keys

    def append(self, events: Sequence[Event], epoch: int | None) -> None:
        if epoch is not None and epoch < self._last.epoch:
            raise StaleOwner(self._session, epoch, self._last.epoch)
        keys = self._admitted(events)
        with writing(self._folder):
            lines, data = self._lines(events)
            self._write(b"".join(lines))
            self._taken_in(lines, data)
        self._keys.update(keys)

    def checkpoint(self, snapshot: Snapshot) -> None:
        with writing(self._folder):
            keep_keys(self._folder, self._keys, self.position, fsync=self._fsync)
            self._keys = {}
            keep_snapshot(self._folder, snapshot, fsync=self._fsync)

    def rewrite(self, events: Sequence[Event], change: Callable[[Event], Event]) -> None:
        keys = self._admitted(events)
        with writing(self._folder):
            lines, _ = self._lines(events)
            try:
                with LogView(self._folder) as view:
                    key_lost = rewrite_log(view, change, lines, fsync=self._fsync)
            finally:
                self._look_again()
            with LogView(self._folder) as view:
                if key_lost:
                    drop_keys(self._folder)
                    self._keys = keys_in(view, 1)
                else:
                    self._keys.update(keys)
                swept(view, fsync=self._fsync)

    def close(self) -> None:
        self._lock.release()

    def _admitted(self, events: Sequence[Event]) -> dict[str, int]:
        """The keys of events that may be appended."""
        if self._unusable:
            raise StoreUnavailable(self._unusable)
        if events and events[0].seq != self.position + 1:
            raise PositionTaken(self._session, events[0].seq, self.position)
        keys: dict[str, int] = {}
        for seq, event in enumerate(events, self.position + 1):
            if event.seq != seq:
                raise ValueError(f"event {event.seq} of a batch stands where {seq} belongs")
            if isinstance(event.body, Said) and event.body.key is not None:
                key = event.body.key
                taken = keys.get(key) or self._find_key(key)
                if taken is not None:
                    raise KeyTaken(self._session, key, taken)
                keys[key] = seq
        return keys

    def _find_key(self, key: str) -> int | None:
        if key in self._keys or not key_candidates(self._folder, key):
            return self._keys.get(key)
        with LogView(self._folder) as view:
            return find_key(view, key)

    def _lines(self, events: Sequence[Event]) -> tuple[list[bytes], list[Mapping[str, Any]]]:
        """The lines of a batch; what they name beside the log is there already."""
        written = [to_line(event) for event in events]
        for line in written:
            keep_blobs(self._folder, line.blobs, fsync=self._fsync)
        forks = [event.body for event in events if isinstance(event.body, Fork)]
        # The newest alone: the others were copied with the parent's past.
        if forks and forks[-1].parent:
            self._tell_parent(forks[-1].parent)
        return batch([line.text for line in written]), [line.data for line in written]

    def _tell_parent(self, parent: str) -> None:
        """Before the event: a parent that names a fork too many asks it and learns better."""
        folder = self._root / folder_name(parent)
        # There is nothing to tell where the parent is not, or is deleted just now.
        with contextlib.suppress(FileNotFoundError):
            if (folder / LOG).exists():
                make_folder(folder / FORKS)
                name = folder / FORKS / folder_name(self._session)
                os.close(open_file(name, os.O_WRONLY | os.O_CREAT))
                if self._fsync:
                    sync_folder(folder / FORKS)
                    sync_folder(folder)

    def _write(self, data: bytes) -> None:
        path = self._folder / LOG
        fd = open_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            write_at(fd, self._end, data)
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
        """A log is there only if the folders on the way to it are."""
        for folder in (self._folder, self._root, self._root.parent):
            sync_folder(folder)

    def _undo(self, fd: int, path: Path) -> None:
        try:
            os.ftruncate(fd, self._end)
            if self._fsync:
                os.fsync(fd)
        except OSError as error:
            self._unusable = (
                f"a write to {path} failed and could not be undone ({error.strerror}); release the "
                "session and open it again: it is repaired then"
            )

    def _taken_in(self, lines: Sequence[bytes], data: Sequence[Mapping[str, Any]]) -> None:
        """The batch is durable: from here on nothing may fail."""
        known, entries = self._last.seq, bytearray()
        for line, event in zip(lines, data, strict=True):
            self._last = next_entry(self._last, self._end, event)
            self._end += len(line)
            entries += pack_entry(self._last)
        try:
            if self._reindex:
                with LogView(self._folder) as view:
                    view.reindex()
            else:
                _write_index(self._folder / INDEX, known * ENTRY, bytes(entries))
            self._reindex = False
        except OSError:
            # Whoever reads finds the missing entries in the log; the next append tries again.
            self._reindex = True

    def _recover(self) -> None:
        drop_unfinished(self._folder)
        if not (self._folder / LOG).exists():
            # Whatever else is here belongs to no event.
            drop_keys(self._folder)
            return
        with LogView(self._folder, careful=True) as view:
            self._last, self._end = view.last, view.end
            if view.size > view.end:
                self._cut(view)
            view.reindex()
            if (self._folder / MARKER).exists():
                drop_keys(self._folder)
                swept(view, fsync=self._fsync)
            if not 0 < keyed_upto(self._folder) <= self.position:
                drop_keys(self._folder)
            self._keys = keys_in(view, keyed_upto(self._folder) + 1)

    def _look_again(self) -> None:
        """Whichever log is there after a rewrite, the next append goes behind that one."""
        try:
            with LogView(self._folder) as view:
                self._last, self._end = view.last, view.end
        except (OSError, Damaged) as error:
            self._unusable = f"{self._folder / LOG} cannot be read after a rewrite: {error}"
            raise

    def _cut(self, view: LogView) -> None:
        """Put what stands behind the last whole batch aside: it was never acknowledged."""
        fd = os.open(view.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            torn = os.pread(fd, view.size - view.end, view.end)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(open_file(self._folder / TORN, flags), "ab") as aside:
                aside.write(torn)
                aside.flush()
                os.fsync(aside.fileno())
            os.ftruncate(fd, view.end)
            os.fsync(fd)
        finally:
            os.close(fd)
        _log.warning(
            "%s: %d bytes of an unfinished write behind event %d were moved to %s",
            view.path,
            len(torn),
            view.last.seq,
            TORN,
        )


def _write_index(path: Path, offset: int, entries: bytes) -> None:
    fd = open_file(path, os.O_WRONLY | os.O_CREAT)
    try:
        write_at(fd, offset, entries)
    finally:
        os.close(fd)
