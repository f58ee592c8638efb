"""What is being written in a session right now, for all who follow it.

A hub listens once for all followers of a session and keeps the reply that is being written, whole.
A follower has a place in it and nothing else, so one that reads slowly costs no memory: it gets
longer pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trimtab.gateways.http.projecting import Projector
from trimtab.session.happenings import Piece, Summarised
from trimtab.stores.errors import StoreError
from trimtab.stores.store import Store
from trimtab.worker.live import Heard, Live, Missed

LINGER = 30.0
"""Seconds that a hub listens on when its last follower has gone: connections break."""


@dataclass(slots=True)
class Draft:
    """A reply that is being written."""

    call: int
    """Position of the call that it answers."""
    pieces: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Kind and text, in order; neighbours are of different kinds."""

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        if self.pieces and self.pieces[-1][0] == piece.kind:
            self.pieces[-1] = (piece.kind, self.pieces[-1][1] + piece.text)
        else:
            self.pieces.append((piece.kind, piece.text))

    def after(self, text: int, thinking: int) -> list[tuple[str, str]]:
        """What is behind so many characters of each kind."""
        skip = {"text": text, "thinking": thinking}
        found: list[tuple[str, str]] = []
        for kind, whole in self.pieces:
            left = whole[skip.get(kind, 0) :]
            skip[kind] = max(0, skip.get(kind, 0) - len(whole))
            if left:
                found.append((kind, left))
        return found


class Hub:
    """One session that is followed."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._projector = Projector(store, session)
        self._position = 0
        self._lost = 0
        self._deaf = False
        self._news = asyncio.Event()
        self.draft: Draft | None = None
        """What is being written; None where nothing is, or its beginning was not heard."""
        self.version = 0
        """Rises with everything that is heard."""
        self.log_version = 0
        """Rises where there may be something new in the log."""
        self.users = 0
        """Followers, the ones that have just gone included."""

    async def listen(self, queue: asyncio.Queue[Heard], ready: asyncio.Event) -> None:
        """Hear what happens, until cancelled."""
        # What is being written now began before we listened.
        try:
            await self._read_log()
            self._lost = self._projector.call
        except StoreError:
            self._deaf = True
        ready.set()
        while True:
            try:
                await self._hear(await queue.get())
            except StoreError:
                self.draft, self._deaf = None, True
                self.log_version += 1  # the followers read the log and are told
            self._wake()

    def wake(self) -> None:
        """There may be something new in the log."""
        self.log_version += 1
        self._wake()

    async def changed(self, version: int, seconds: float) -> None:
        """Wait for something new, but no longer than this."""
        if self.version != version:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _hear(self, heard: Heard) -> None:
        match heard:
            case Piece():
                if self.draft is None and not self._deaf:
                    await self._begin()
                if self.draft is not None:
                    self.draft.add(heard)
            case Missed():
                self.draft, self._deaf = None, False
                self.log_version += 1
                # If something is being written, we may have missed some of it.
                await self._read_log()
                self._lost = self._projector.call
            case Summarised():
                self.log_version += 1  # it comes from beside the turn, and may come amid a reply
            case _:
                self.draft, self._deaf = None, False
                self.log_version += 1

    async def _begin(self) -> None:
        """The first piece of a reply: its call is in the log already."""
        await self._read_log()
        self.log_version += 1
        call = self._projector.call
        if call and call != self._lost:
            self.draft = Draft(call=call)
        else:
            self._deaf = True

    async def _read_log(self) -> None:
        if await self._store.position(self._session) < self._position:
            # Deleted, and begun anew: what was read is another log's.
            self._position = self._lost = 0
            self._projector = Projector(self._store, self._session)
        if not self._position:
            self._position = await self._store.position(self._session)
            await self._projector.before(self._position)
        span = (self._position + 1, None)
        async for event in self._store.events(self._session, [span]):
            self._position = event.seq
            await self._projector.show(event)

    def _wake(self) -> None:
        self.version += 1
        news, self._news = self._news, asyncio.Event()
        news.set()


class Hubs:
    """Hubs by session, for as long as somebody follows it, and a while longer."""

    def __init__(self, store: Store, live: Live, *, linger: float = LINGER) -> None:
        self._store = store
        self._live = live
        self._linger = linger
        self._hubs: dict[str, Hub] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.TimerHandle] = set()

    @asynccontextmanager
    async def following(self, session: str) -> AsyncGenerator[Hub]:
        """The hub of a session, listening."""
        hub = self._hubs.get(session)
        if hub is None:
            hub = self._hubs[session] = Hub(self._store, session)
            ready = self._ready[session] = asyncio.Event()
            task = asyncio.create_task(self._listen(session, hub, ready), name=f"hub of {session}")
            self._tasks[session] = task
        hub.users += 1
        try:
            await self._ready[session].wait()
            yield hub
        finally:
            self._later(lambda: self._leave(session, hub))

    def wake(self, session: str) -> None:
        """Somebody has written to a session without a word."""
        if (hub := self._hubs.get(session)) is not None:
            hub.wake()

    def wake_all(self) -> None:
        """Let all followers look around."""
        for hub in list(self._hubs.values()):
            hub.wake()

    async def close(self) -> None:
        """Stop listening everywhere."""
        for handle in self._leaving:
            handle.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, session: str, hub: Hub, ready: asyncio.Event) -> None:
        try:
            with self._live.watch(session) as queue:
                await hub.listen(queue, ready)
        finally:
            ready.set()
            if self._hubs.get(session) is hub:
                del self._hubs[session], self._ready[session], self._tasks[session]
            hub.wake()

    def _later(self, leave: Callable[[], None]) -> None:
        def run() -> None:
            self._leaving.discard(handle)
            leave()

        handle = asyncio.get_running_loop().call_later(self._linger, run)
        self._leaving.add(handle)

    def _leave(self, session: str, hub: Hub) -> None:
        hub.users -= 1
        if not hub.users and self._hubs.get(session) is hub:
            self._tasks[session].cancel()
