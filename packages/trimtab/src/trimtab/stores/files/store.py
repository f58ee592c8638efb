"""The store on files: a folder for each session, readable with `cat`, `grep` and `git diff`.

- `events.jsonl`: the log, one event a line. It is the source of truth.
- `events.end`: the offset of its last line, and counts.
- `state.yaml`: the newest snapshot.
- `index.db`: earlier snapshots, and idempotency keys.
- `blobs/`: texts over 64 KiB, compressed, each once.
- `forks/`: an empty file for each session that was forked from this one.
- `lock`: the process that writes.
- `events.torn`: unfinished writes that were cut off the log after a crash.

One process writes to a session and holds its lock until it releases the session. Any process may
read. Another process can see an append a moment before it is acknowledged.

Only the owner can read these files. The folder of all sessions is also closed to others, unless it
already existed and contains something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import threading
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NoReturn, Self, TypeVar
from uuid import uuid4

from trimtab.engine.log.event import Event
from trimtab.engine.recall.search import Query
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import (
    LogDamaged,
    NewerLogError,
    PositionTaken,
    SessionLockedByOtherProcess,
    SessionNotFound,
    StoreClosed,
    StoreError,
)
from trimtab.stores.base import NEWER_THAN_ALL, WHOLE_LOG, PositionSpan, SessionListEntry
from trimtab.stores.files.disk import (
    HAS_POSIX_FILES,
    folder_name_to_session,
    fsync_folder,
    make_private_folder,
    resolve_folder,
    restrict_folder_tree_to_owner,
    session_to_folder_name,
    translate_read_errors,
    translate_write_errors,
)
from trimtab.stores.files.index import SessionIndex
from trimtab.stores.files.lock import LOCK_FILE, FolderLock, find_lock_holder
from trimtab.stores.files.log_file import LOG_FILE, LogView
from trimtab.stores.files.log_reader import (
    LogSearch,
    find_parent_session,
    read_event_chunk,
    read_session_list_entry,
)
from trimtab.stores.files.log_rewrite import SWEEP_MARKER_FILE
from trimtab.stores.files.session_writer import FORKS_FOLDER, SessionWriter
from trimtab.stores.files.snapshots import find_newest_snapshot
from trimtab.stores.files.spending_ledger import SqliteSpendingLedger
from trimtab.stores.files.subject_search import may_have_subject
from trimtab.stores.forks import keep_unused, leave_at_fork, refuse_pickling
from trimtab.stores.shared_lock import SharedByName, SharedLock
from trimtab.stores.spending import SpendingLedger
from trimtab.stores.turn_queue import TurnQueue

T = TypeVar("T")

_DELETED_FOLDER = ".deleted"
"""The folder for sessions to be removed. No session's folder begins with a dot."""
SPENDING_FOLDER = ".spending"
"""The folder for the costs of model calls."""
_RESERVED_FOLDERS = (_DELETED_FOLDER, ".server", SPENDING_FOLDER, ".erasures")
"""Folders beside the sessions."""

_SESSIONS_PER_SEARCH = 100
"""Logs to search for a subject before the event loop is asked whether to go on."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True, weakref_slot=True)
class _SessionGate:
    """Decides which caller in this process may write to a session next."""

    queue: SharedLock = field(default_factory=SharedLock)
    """Coroutines wait here, not in a thread."""
    working: threading.Lock = field(default_factory=threading.Lock)
    """Held by a write. If its coroutine is cancelled, the write continues in its thread until it is
    complete."""


class FileStore:
    """A store of logs in folders, for one writing process for each session.

    Args:
        root: The folder of all sessions. `~` is the user's home.
        fsync: If False, the operating system decides when a write reaches the disk. Then a crash of
            the process loses nothing, but a crash of the machine loses the last seconds.
    """

    def __init__(self, root: Path | str, *, fsync: bool = True) -> None:
        self._root = resolve_folder(root)
        self._fsync = fsync
        self._gates = SharedByName(_SessionGate)
        self._writers: dict[str, tuple[_SessionGate, SessionWriter]] = {}
        self._spending = SqliteSpendingLedger(self._root / SPENDING_FOLDER / "spending.sqlite3")
        self._turns = TurnQueue()
        self._is_private = False
        """Whether the root folder was checked, and closed to other users if the store may do
        that."""
        self._is_closed = False
        leave_at_fork(self)

    @property
    def root(self) -> Path:
        """The folder of all sessions."""
        return self._root

    def spending_ledger(self) -> SpendingLedger:
        """Return the ledger of the costs of model calls."""
        return self._spending

    async def latest_epoch(self, session: str) -> int:
        """Return the epoch of the newest claimed turn; 0 if there was none."""
        lock_and_writer = self._writers.get(session)
        if lock_and_writer is not None:
            return lock_and_writer[1].epoch
        with contextlib.suppress(SessionNotFound):
            return await self._look(session, lambda view: view.last.epoch)
        return 0

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        refuse_pickling("FileStore")

    async def __aenter__(self) -> Self:
        """Return the store. It is closed at the end of the block."""
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        """Add events to a log, all or none; see `Store.append`."""
        if not events:
            return
        first = events[0].seq

        def step() -> None:
            if first != 1 and not self._log(session).exists():
                raise PositionTaken(session, first, 0)
            self._writer(session).append(events, epoch)

        await self._in_turn(session, step)

    async def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        """Iterate over events of a log; see `Store.events`."""
        rest = list(spans)
        while True:
            chunk, rest = await self._look(session, self._reader(session, rest))
            for event in chunk:
                yield event
            if not rest:
                return

    def _reader(
        self, session: str, spans: Sequence[PositionSpan]
    ) -> Callable[[LogView], tuple[list[Event], list[PositionSpan]]]:
        upto = self._upto(session)
        if upto == 0:
            raise SessionNotFound(session)
        return lambda view: read_event_chunk(view, spans, upto)

    async def position(self, session: str) -> int:
        """Return the last position of a log; 0 if there is no such session."""
        upto = self._upto(session)
        if upto is not None:
            return upto
        position = 0
        with contextlib.suppress(SessionNotFound):
            position = await self._look(session, lambda view: view.last.seq)
        # A writer that has come meanwhile may not have acknowledged yet what is there.
        upto = self._upto(session)
        return position if upto is None else min(position, upto)

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        """Return the newest snapshot; see `Store.snapshot`."""
        limit = await self.position(session)
        if upto is not None:
            limit = min(limit, upto)
        return await asyncio.to_thread(self._snapshot, session, limit)

    def _snapshot(self, session: str, upto: int) -> Snapshot | None:
        folder = self._folder(session)
        with translate_read_errors(folder):
            return find_newest_snapshot(folder, upto)

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; see `Store.checkpoint`."""
        await self._in_turn(session, lambda: self._known_writer(session).checkpoint(snapshot))

    async def find_key(self, session: str, key: str) -> int | None:
        """Return the position of the message with this idempotency key; None if there is none."""

        def find(view: LogView) -> int | None:
            lock_and_writer = self._writers.get(session)
            recent = lock_and_writer[1].recent_keys if lock_and_writer else None
            with contextlib.closing(SessionIndex(view.folder)) as index:
                return index.find_key(view, key, recent)

        with contextlib.suppress(SessionNotFound):
            return await self._look(session, find)
        return None

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        """Return the positions of the messages that match a query best, best first."""
        log_search = LogSearch(query=Query.parse(query), limit=limit)
        with contextlib.suppress(SessionNotFound):
            # In pieces, so that a cancelled caller leaves no thread that reads on.
            while log_search.query.words and not log_search.is_complete:
                await self._look(session, log_search.search_next_chunk)
        return log_search.best_positions()

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        """Append and replace events, see `Store.rewrite`. `change` is called in another thread."""
        await self._in_turn(session, lambda: self._known_writer(session).rewrite(events, change))

    async def delete(self, session: str) -> None:
        """Remove a session and everything that was made from it."""
        await self._in_turn(session, lambda: self._delete(session))

    async def forks(self, session: str) -> list[str]:
        """Return the ids of the sessions that were forked from a session."""
        return await asyncio.to_thread(self._forks, session)

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionListEntry]:
        """Return sessions in the order of their ids; see `Store.sessions`."""
        return await asyncio.to_thread(self._sessions, after, limit)

    async def recent_sessions(
        self, folder: str, *, before: tuple[float, str] = NEWER_THAN_ALL, limit: int = 100
    ) -> list[SessionListEntry]:
        """Return the sessions of a folder, the last active ones first."""
        return await asyncio.to_thread(self._recent_sessions, folder, before, limit)

    async def sessions_about(self, scope: str, subjects: Collection[str]) -> list[str]:
        """Return the sessions that may have one of these subjects."""
        ids = await asyncio.to_thread(self._list_ids, scope)
        sessions = list[str]()
        for first in range(0, len(ids), _SESSIONS_PER_SEARCH):
            # In pieces, so that a cancelled caller leaves no thread that reads on.
            some = ids[first : first + _SESSIONS_PER_SEARCH]
            sessions += await asyncio.to_thread(self._search_subjects, some, subjects)
        return sessions

    async def list_session_names(self) -> list[str]:
        """Return the ids of all sessions."""
        return await asyncio.to_thread(self._list_ids)

    async def measure_sessions(self, sessions: Sequence[str]) -> list[int]:
        """Return the bytes of each session's files. 0 if it does not exist."""

        def measure(session: str) -> int:
            total = 0
            for folder, _, files in os.walk(self._folder(session)):
                for name in files:
                    with contextlib.suppress(FileNotFoundError):
                        total += (Path(folder) / name).stat().st_size
            return total

        return await asyncio.to_thread(lambda: [measure(session) for session in sessions])

    async def recover(self) -> None:
        """Finish erasures and deletions that a crash interrupted, in all sessions.

        Files that others could read are closed to them. Call it once when a process starts to use a
        folder. Sessions that another process writes to are skipped.
        """
        await asyncio.to_thread(self._recover)

    def _recover(self) -> None:
        with translate_write_errors(self._root):
            self._close_root()
            self._empty_deleted()
            names = [path.name for path in self._root.iterdir()]
        for name in names:
            if not name.startswith(".") and (self._root / name / LOG_FILE).exists():
                try:
                    self._recover_one(name)
                except StoreError as error:
                    _logger.warning(
                        "session %s was not recovered: %s", folder_name_to_session(name), error
                    )

    def _recover_one(self, name: str) -> None:
        if (self._root / name / SWEEP_MARKER_FILE).exists():
            SessionWriter(self._root, folder_name_to_session(name), fsync=self._fsync).close()
        else:
            with translate_write_errors(self._root / name):
                restrict_folder_tree_to_owner(self._root / name)

    def _close_root(self) -> None:
        """Close the root folder to other users, unless it also contains files of others."""
        if self._is_private:
            return
        if not self._root.exists() or all(map(_is_store_folder, self._root.iterdir())):
            make_private_folder(self._root)
        self._is_private = True

    async def held_by(self, session: str) -> str | None:
        """Return the id of another process that writes to the session; None if there is none."""
        if session in self._writers:
            return None
        return await asyncio.to_thread(find_lock_holder, self._folder(session))

    def hold_turn(self, session: str, *, wait: float) -> AbstractAsyncContextManager[None]:
        """Hold the turn of a session, see `Store.hold_turn`. The lock of its writer is the lock of
        its turn. It is released at the end."""
        return self._turns.hold(
            session,
            wait=wait,
            try_lock=lambda: self._try_lock(session),
            unlock=lambda: self._in_turn(session, lambda: self._release(session)),
        )

    async def _try_lock(self, session: str) -> bool:
        try:
            await self._in_turn(session, lambda: self._known_writer(session))
        except SessionLockedByOtherProcess:
            return False
        return True

    async def release(self, session: str) -> None:
        """Release the lock of a session, unless a request holds its turn, which then does it."""
        if not self._turns.is_held(session):
            await self._in_turn(session, lambda: self._release(session))

    async def close(self) -> None:
        """Release the locks of all sessions. After that, nothing can be written."""
        self._is_closed = True
        for session in list(self._writers):
            await self._in_turn(session, partial(self._release, session))
        await asyncio.to_thread(self._spending.close)

    def leave_to_parent(self) -> None:
        """Begin like the store of another process: the locks are those of the parent."""
        keep_unused(self._writers)
        self._gates = SharedByName(_SessionGate)
        self._writers = {}

    def _folder(self, session: str) -> Path:
        return self._root / session_to_folder_name(session)

    def _log(self, session: str) -> Path:
        return self._folder(session) / LOG_FILE

    def _upto(self, session: str) -> int | None:
        """Return the last acknowledged position if this process writes. The log may be ahead of
        it."""
        lock_and_writer = self._writers.get(session)
        return lock_and_writer[1].position if lock_and_writer else None

    async def _in_turn(self, session: str, step: Callable[[], T]) -> T:
        """Run a step that writes, one at a time for each session."""
        gate = self._gates.get_or_create(session)

        def work() -> T:
            with gate.working:
                return step()

        async with gate.queue:
            return await asyncio.to_thread(work)

    def _writer(self, session: str) -> SessionWriter:
        if session not in self._writers:
            if self._is_closed:
                raise StoreClosed
            with translate_write_errors(self._root):
                self._close_root()
            writer = SessionWriter(self._root, session, fsync=self._fsync)
            self._empty_deleted()
            # The gate lives as long as its writer: two gates for one session would be none.
            self._writers[session] = (self._gates.get_or_create(session), writer)
        return self._writers[session][1]

    def _known_writer(self, session: str) -> SessionWriter:
        if not self._log(session).exists():
            raise SessionNotFound(session)
        writer = self._writer(session)
        if not writer.position:
            raise SessionNotFound(session)
        return writer

    def _release(self, session: str) -> None:
        lock_and_writer = self._writers.pop(session, None)
        if lock_and_writer:
            lock_and_writer[1].close()

    def _delete(self, session: str) -> None:
        if not self._log(session).exists():
            raise SessionNotFound(session)
        lock = None if session in self._writers else FolderLock(self._folder(session), session)
        try:
            with translate_write_errors(self._root):
                self._forget(session)
                make_private_folder(self._root / _DELETED_FOLDER)
                trash = self._root / _DELETED_FOLDER / uuid4().hex
                if not HAS_POSIX_FILES:
                    self._release(session)
                    lock = lock and lock.release()
                self._folder(session).rename(trash)
                if self._fsync:
                    fsync_folder(self._root)
                self._empty_deleted()
                if trash.exists():
                    # Once more, to hear why it cannot be removed.
                    shutil.rmtree(trash)
        finally:
            if lock:
                lock.release()
        self._release(session)
        self._spending.forget_session(session)

    def _empty_deleted(self) -> None:
        """Remove the folders of deleted sessions, including those of interrupted deletions."""
        trash = self._root / _DELETED_FOLDER
        for folder in trash.iterdir() if trash.is_dir() else ():
            shutil.rmtree(folder, ignore_errors=True)

    def _forget(self, session: str) -> None:
        """Remove the session from its parent's forks. An unreadable session is deleted anyway."""
        folder = self._folder(session)
        with contextlib.suppress(LogDamaged, NewerLogError), LogView(folder) as view:
            parent = find_parent_session(view)
            if parent:
                forks = self._folder(parent) / FORKS_FOLDER
                (forks / session_to_folder_name(session)).unlink(missing_ok=True)

    def _forks(self, session: str) -> list[str]:
        forks = self._folder(session) / FORKS_FOLDER
        with translate_read_errors(forks):
            names = [path.name for path in forks.iterdir()] if forks.is_dir() else []
        children: list[str] = []
        for child in map(folder_name_to_session, names):
            # A fork that was never finished is none, nor is one of a later session of that name.
            with contextlib.suppress(SessionNotFound):
                if self._viewed(child, find_parent_session) == session:
                    children.append(child)
        return sorted(children)

    def _list_ids(self, prefix: str = "") -> list[str]:
        with translate_read_errors(self._root):
            names = [path.name for path in self._root.iterdir()] if self._root.is_dir() else []
        ids = (folder_name_to_session(name) for name in names if not name.startswith("."))
        return sorted(session for session in ids if session.startswith(prefix))

    def _sessions(self, after: str, limit: int) -> list[SessionListEntry]:
        ids = self._list_ids()
        return self._describe(ids[bisect_right(ids, after) :], limit)

    def _recent_sessions(
        self, folder: str, before: tuple[float, str], limit: int
    ) -> list[SessionListEntry]:
        write_times: list[tuple[float, str]] = []
        for session in self._list_ids(folder):
            if "/" not in session.removeprefix(folder):
                with contextlib.suppress(OSError):
                    write_times.append((self._log(session).stat().st_mtime, session))
        recent = sorted((one for one in write_times if one < before), reverse=True)
        times = {session: active for active, session in recent}
        # With the time by which it was sorted, even if it was written to meanwhile.
        return [
            replace(entry, active=times[entry.session]) for entry in self._describe(times, limit)
        ]

    def _describe(self, sessions: Iterable[str], limit: int) -> list[SessionListEntry]:
        entries: list[SessionListEntry] = []
        for session in sessions:
            if len(entries) >= limit:
                break
            with contextlib.suppress(SessionNotFound):
                entries.append(self._viewed(session, read_session_list_entry))
        return entries

    def _search_subjects(self, sessions: Sequence[str], subjects: Collection[str]) -> list[str]:
        with translate_read_errors(self._root):
            return [one for one in sessions if may_have_subject(self._folder(one), subjects)]

    async def _look(self, session: str, use: Callable[[LogView], T]) -> T:
        return await asyncio.to_thread(self._viewed, session, use)

    def _viewed(self, session: str, use: Callable[[LogView], T]) -> T:
        try:
            return self._viewed_once(session, use)
        except LogDamaged:
            # Not if a writer has just replaced what was read.
            return self._viewed_once(session, use)

    def _viewed_once(self, session: str, use: Callable[[LogView], T]) -> T:
        folder = self._folder(session)
        with translate_read_errors(folder):
            try:
                view = LogView(folder)
            except (FileNotFoundError, NotADirectoryError):
                raise SessionNotFound(session) from None
            with view:
                if not view.last.seq:
                    raise SessionNotFound(session)
                return use(view)


def _is_store_folder(path: Path) -> bool:
    """Whether a path is a session's folder or another folder of the store."""
    return (
        path.name in _RESERVED_FOLDERS or (path / LOG_FILE).exists() or (path / LOCK_FILE).exists()
    )
