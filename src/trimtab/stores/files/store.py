"""The store on files: a folder for each session, readable with `cat`, `grep` and `git diff`.

    events.jsonl     the log, an event a line; the truth
    events.idx       where each line begins
    state.yaml       the newest snapshot
    snapshots.jsonl  earlier ones
    keys.idx         idempotency keys up to the newest snapshot
    blobs/           texts over 64 KiB, compressed, each once
    forks/           an empty file for each session that was forked from this one
    lock             the process that writes
    events.torn      what a crash had left unfinished, cut off the log

One process writes to a session and holds its lock until it releases the session; any may read.
Another process can see an append a moment before it is acknowledged.

All of it is readable for its owner alone. The folder that all sessions are in is closed to others
as well, unless it was there and something else is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from trimtab.core.event import Event
from trimtab.core.search import asked
from trimtab.core.snapshot import Snapshot
from trimtab.stores.errors import Damaged, NoSession, PositionTaken, StoreError
from trimtab.stores.files.disk import (
    close_folder,
    folder_name,
    make_folder,
    reading,
    session_id,
    sync_folder,
    writing,
)
from trimtab.stores.files.keys import find_key, keyed_upto, keys_in
from trimtab.stores.files.lock import LOCK, Lock, held_by
from trimtab.stores.files.log import LOG, LogView
from trimtab.stores.files.reading import Found, parent_of, read_some, stored
from trimtab.stores.files.rewrite import MARKER
from trimtab.stores.files.snapshots import find_snapshot
from trimtab.stores.files.writer import FORKS, Writer
from trimtab.stores.store import WHOLE, Span, Stored

T = TypeVar("T")

_DELETED = ".deleted"
"""Where sessions go to be removed; no session's folder begins with a dot."""
_OURS = (_DELETED, ".mail", ".schedules")
"""What may stand beside the sessions."""

log = logging.getLogger(__name__)


@dataclass(slots=True, weakref_slot=True)
class _Gate:
    """Who may write to a session next, in this process."""

    queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Coroutines wait here, and not in a thread."""
    working: threading.Lock = field(default_factory=threading.Lock)
    """A write whose coroutine was cancelled goes on in its thread until it is whole."""


class FileStore:
    """Logs in folders under `root`. `fsync=False` leaves it to the system when a write reaches the
    disk: a crash of the process then loses nothing, a crash of the machine the last seconds."""

    def __init__(self, root: Path | str, *, fsync: bool = True) -> None:
        self._root = Path(root)
        self._fsync = fsync
        self._gates: WeakValueDictionary[str, _Gate] = WeakValueDictionary()
        self._writers: dict[str, tuple[_Gate, Writer]] = {}
        self._closed = False
        """Whether the folder was looked at, and closed to others where that is ours to do."""

    @property
    def root(self) -> Path:
        """The folder that all sessions are in."""
        return self._root

    async def epoch(self, session: str) -> int:
        """The newest claimed turn's; 0 where none was."""
        held = self._writers.get(session)
        if held is not None:
            return held[1].epoch
        with contextlib.suppress(NoSession):
            return await self._look(session, lambda view: view.last.epoch)
        return 0

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        if not events:
            return
        first = events[0].seq

        def step() -> None:
            if first != 1 and not self._log(session).exists():
                raise PositionTaken(session, first, 0)
            self._writer(session).append(events, epoch)

        await self._in_turn(session, step)

    async def events(self, session: str, spans: Sequence[Span] = WHOLE) -> AsyncIterator[Event]:
        rest = list(spans)
        while True:
            found, rest = await self._look(session, self._reader(session, rest))
            for event in found:
                yield event
            if not rest:
                return

    def _reader(
        self, session: str, spans: Sequence[Span]
    ) -> Callable[[LogView], tuple[list[Event], list[Span]]]:
        upto = self._upto(session)
        return lambda view: read_some(view, spans, upto)

    async def position(self, session: str) -> int:
        upto = self._upto(session)
        if upto is not None:
            return upto
        with contextlib.suppress(NoSession):
            return await self._look(session, lambda view: view.last.seq)
        return 0

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        limit = await self.position(session)
        if upto is not None:
            limit = min(limit, upto)
        return await asyncio.to_thread(self._snapshot, session, limit)

    def _snapshot(self, session: str, upto: int) -> Snapshot | None:
        folder = self._folder(session)
        with reading(folder):
            return find_snapshot(folder, upto)

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        await self._in_turn(session, lambda: self._known_writer(session).checkpoint(snapshot))

    async def find_key(self, session: str, key: str) -> int | None:
        def find(view: LogView) -> int | None:
            held = self._writers.get(session)
            fresh = held[1].keys if held else keys_in(view, keyed_upto(view.folder) + 1)
            return fresh[key] if key in fresh else find_key(view, key)

        with contextlib.suppress(NoSession):
            return await self._look(session, find)
        return None

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        found = Found(words=asked(query), limit=limit)
        with contextlib.suppress(NoSession):
            # In pieces: whoever gives up waiting does not leave a thread that reads on.
            while found.words and not found.whole:
                await self._look(session, found.search_some)
        return found.best()

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        """As the protocol has it. `change` is called in another thread."""
        await self._in_turn(session, lambda: self._known_writer(session).rewrite(events, change))

    async def delete(self, session: str) -> None:
        await self._in_turn(session, lambda: self._delete(session))

    async def forks(self, session: str) -> list[str]:
        return await asyncio.to_thread(self._forks, session)

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[Stored]:
        return await asyncio.to_thread(self._sessions, after, limit)

    async def recover(self) -> None:
        """Finish what crashes have cut short, in all sessions: erasures and deletions. What others
        could read is closed to them. For whoever takes up a folder; a session that another process
        writes to is left to it."""
        await asyncio.to_thread(self._recover)

    def _recover(self) -> None:
        with writing(self._root):
            self._close_root()
            self._empty_deleted()
            names = [path.name for path in self._root.iterdir()]
        for name in names:
            if not name.startswith(".") and (self._root / name / LOG).exists():
                try:
                    self._recover_one(name)
                except StoreError as error:
                    log.warning("session %s is left as it is: %s", session_id(name), error)

    def _recover_one(self, name: str) -> None:
        if (self._root / name / MARKER).exists():
            Writer(self._root, session_id(name), fsync=self._fsync).close()
        else:
            with writing(self._root / name):
                close_folder(self._root / name)

    def _close_root(self) -> None:
        """Not where somebody else's things are in it: who may see those is not ours to say."""
        if self._closed:
            return
        if not self._root.exists() or all(map(_is_ours, self._root.iterdir())):
            make_folder(self._root)
        self._closed = True

    async def held_by(self, session: str) -> str | None:
        """Another process that writes to the session, and would be in the way; None for none."""
        if session in self._writers:
            return None
        return await asyncio.to_thread(held_by, self._folder(session))

    async def release(self, session: str) -> None:
        await self._in_turn(session, lambda: self._release(session))

    async def close(self) -> None:
        for session in list(self._writers):
            await self.release(session)

    def _folder(self, session: str) -> Path:
        return self._root / folder_name(session)

    def _log(self, session: str) -> Path:
        return self._folder(session) / LOG

    def _upto(self, session: str) -> int | None:
        """The last acknowledged position, where this process writes: the log may be ahead."""
        held = self._writers.get(session)
        return held[1].position if held else None

    async def _in_turn(self, session: str, step: Callable[[], T]) -> T:
        """Run a step that writes, one at a time for each session."""
        gate = self._gates.setdefault(session, _Gate())

        def work() -> T:
            with gate.working:
                return step()

        async with gate.queue:
            return await asyncio.to_thread(work)

    def _writer(self, session: str) -> Writer:
        if session not in self._writers:
            with writing(self._root):
                self._close_root()
            writer = Writer(self._root, session, fsync=self._fsync)
            self._empty_deleted()
            # The gate lives as long as its writer: two gates for one session would be none.
            self._writers[session] = (self._gates[session], writer)
        return self._writers[session][1]

    def _known_writer(self, session: str) -> Writer:
        if not self._log(session).exists():
            raise NoSession(session)
        writer = self._writer(session)
        if not writer.position:
            raise NoSession(session)
        return writer

    def _release(self, session: str) -> None:
        held = self._writers.pop(session, None)
        if held:
            held[1].close()

    def _delete(self, session: str) -> None:
        if not self._log(session).exists():
            raise NoSession(session)
        lock = None if session in self._writers else Lock(self._folder(session), session)
        try:
            with writing(self._root):
                self._forget(session)
                make_folder(self._root / _DELETED)
                gone = self._root / _DELETED / uuid4().hex
                self._folder(session).rename(gone)
                if self._fsync:
                    sync_folder(self._root)
                self._empty_deleted()
                if gone.exists():
                    # Once more, to hear why it cannot be removed.
                    shutil.rmtree(gone)
        finally:
            if lock:
                lock.release()
        self._release(session)

    def _empty_deleted(self) -> None:
        """Remove what deletions have put aside, also those that a crash cut short."""
        deleted = self._root / _DELETED
        for folder in deleted.iterdir() if deleted.is_dir() else ():
            shutil.rmtree(folder, ignore_errors=True)

    def _forget(self, session: str) -> None:
        """Take the session out of its parent's forks; a damaged one is deleted all the same."""
        with contextlib.suppress(Damaged), LogView(self._folder(session)) as view:
            parent = parent_of(view)
            if parent:
                forks = self._folder(parent) / FORKS
                (forks / folder_name(session)).unlink(missing_ok=True)

    def _forks(self, session: str) -> list[str]:
        forks = self._folder(session) / FORKS
        with reading(forks):
            names = [path.name for path in forks.iterdir()] if forks.is_dir() else []
        found: list[str] = []
        for child in map(session_id, names):
            # A fork that was never finished is none, nor is one of a later session of that name.
            with contextlib.suppress(NoSession):
                if self._viewed(child, parent_of) == session:
                    found.append(child)
        return sorted(found)

    def _sessions(self, after: str, limit: int) -> list[Stored]:
        with reading(self._root):
            names = [path.name for path in self._root.iterdir()] if self._root.is_dir() else []
        ids = sorted(session_id(name) for name in names if not name.startswith("."))
        found: list[Stored] = []
        for session in ids:
            if len(found) >= limit:
                break
            if session > after:
                with contextlib.suppress(NoSession):
                    found.append(self._viewed(session, stored))
        return found

    async def _look(self, session: str, use: Callable[[LogView], T]) -> T:
        return await asyncio.to_thread(self._viewed, session, use)

    def _viewed(self, session: str, use: Callable[[LogView], T]) -> T:
        try:
            return self._viewed_once(session, use)
        except Damaged:
            # Not if a writer has just replaced what was read.
            return self._viewed_once(session, use)

    def _viewed_once(self, session: str, use: Callable[[LogView], T]) -> T:
        folder = self._folder(session)
        with reading(folder):
            try:
                view = LogView(folder)
            except (FileNotFoundError, NotADirectoryError):
                raise NoSession(session) from None
            with view:
                if not view.last.seq:
                    raise NoSession(session)
                return use(view)


def _is_ours(path: Path) -> bool:
    """Whether it is a session's folder, or what stands beside those."""
    return path.name in _OURS or (path / LOG).exists() or (path / LOCK).exists()
