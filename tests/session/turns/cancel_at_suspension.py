"""Cancels a turn at its k-th suspension, wherever that is, in its tools' tasks too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any

from tests.session.failing_stores import Wrapped
from trimtab.engine.log.event import Event
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.stores.base import WHOLE_LOG, PositionSpan
from trimtab.testing import ScriptedProvider


class Suspensions:
    """Counts how often the tasks of a loop are suspended, and cancels one at the k-th time."""

    def __init__(self, cancel_at: int) -> None:
        self.left = cancel_at
        self.turn: asyncio.Task[Any] | None = None

    def suspended(self) -> None:
        if self.turn is not None:
            self.left -= 1
            if self.left == 0:
                self.turn.cancel()

    async def run(self, turn: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        """Whether the turn came to its end before that."""
        loop = asyncio.get_running_loop()

        def task(loop: asyncio.AbstractEventLoop, coro: Any, **how: Any) -> asyncio.Task[Any]:
            return asyncio.Task(_counted(coro, self.suspended), loop=loop, **how)

        loop.set_task_factory(task)
        try:
            self.turn = asyncio.create_task(turn())
            with suppress(asyncio.CancelledError):
                await self.turn
            return not self.turn.cancelled()
        finally:
            loop.set_task_factory(None)


async def _counted(coro: Coroutine[Any, Any, Any], suspended: Callable[[], None]) -> Any:
    return await _Driven(coro, suspended)


class _Driven(Awaitable[Any]):
    def __init__(self, coro: Coroutine[Any, Any, Any], suspended: Callable[[], None]) -> None:
        self._coro = coro
        self._suspended = suspended

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._coro.send(None)  # noqa: E731 - replaced below
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            self._suspended()
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - thrown into what is driven
                step = _throwing(self._coro, error)
            else:
                step = _sending(self._coro)


def _throwing(coro: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: coro.throw(error)


def _sending(coro: Coroutine[Any, Any, Any]) -> Callable[[], Any]:
    return lambda: coro.send(None)


async def pause() -> None:
    """A point at which a cancellation may come."""
    await asyncio.sleep(0)


class Pausing(Wrapped):
    """Waits before and after whatever it does."""

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        await pause()
        await self.inner.append(session, events, epoch=epoch)
        await pause()

    async def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        await pause()
        async for event in self.inner.events(session, spans):
            yield event
        await pause()

    async def position(self, session: str) -> int:
        await pause()
        seq = await self.inner.position(session)
        await pause()
        return seq

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        await pause()
        await self.inner.checkpoint(session, snapshot)
        await pause()


class PausingProvider(ScriptedProvider):
    """Waits before it is asked, between the events of a reply and after them."""

    async def send(self, request: Any) -> AsyncIterator[Any]:
        await pause()
        async for event in super().send(request):
            yield event
            await pause()
        await pause()
