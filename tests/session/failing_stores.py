"""Stores that count what they hand out, or fail when they are told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from trimtab.engine.log.event import Event
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import StoreUnavailable
from trimtab.stores.base import (
    NEWER_THAN_ALL,
    WHOLE_LOG,
    PositionSpan,
    SessionListEntry,
    Store,
)


class Wrapped:
    """A store that passes everything on."""

    def __init__(self, store: Store) -> None:
        self.inner = store

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        await self.inner.append(session, events, epoch=epoch)

    async def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        async for event in self.inner.events(session, spans):
            yield event

    async def position(self, session: str) -> int:
        return await self.inner.position(session)

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        return await self.inner.snapshot(session, upto=upto)

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        await self.inner.checkpoint(session, snapshot)

    async def find_key(self, session: str, key: str) -> int | None:
        return await self.inner.find_key(session, key)

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        return await self.inner.search(session, query, limit=limit)

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        await self.inner.rewrite(session, events, change)

    async def delete(self, session: str) -> None:
        await self.inner.delete(session)

    async def forks(self, session: str) -> list[str]:
        return await self.inner.forks(session)

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionListEntry]:
        return await self.inner.sessions(after=after, limit=limit)

    async def recent_sessions(
        self, folder: str, *, before: tuple[float, str] = NEWER_THAN_ALL, limit: int = 100
    ) -> list[SessionListEntry]:
        return await self.inner.recent_sessions(folder, before=before, limit=limit)

    async def sessions_about(self, scope: str, subjects: Collection[str]) -> list[str]:
        return await self.inner.sessions_about(scope, subjects)

    def hold_turn(self, session: str, *, wait: float) -> AbstractAsyncContextManager[None]:
        return self.inner.hold_turn(session, wait=wait)

    async def release(self, session: str) -> None:
        await self.inner.release(session)

    async def close(self) -> None:
        await self.inner.close()


class Counting(Wrapped):
    """Counts the events it hands out."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read = 0

    async def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        async for event in self.inner.events(session, spans):
            self.read += 1
            yield event


class Forgetful(Wrapped):
    """Has thrown its snapshots away."""

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        return None


When = Literal["before", "after"]


class Failing(Wrapped):
    """Is cut off at the next write that it is told of, before or after that has landed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.at: dict[str, When] = {}
        self.tried = 0

    def fail(self, what: str, when: When) -> None:
        self.at[what] = when

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        await self._do("append", lambda: self.inner.append(session, events, epoch=epoch))

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        await self._do("checkpoint", lambda: self.inner.checkpoint(session, snapshot))

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        await self._do("rewrite", lambda: self.inner.rewrite(session, events, change))

    async def _do(self, what: str, write: Callable[[], Any]) -> None:
        self.tried += 1
        when = self.at.pop(what, None)
        if when == "before":
            raise StoreUnavailable("cut off before it landed")
        await write()
        if when == "after":
            raise StoreUnavailable("cut off after it landed")
