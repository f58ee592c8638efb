"""The requests that wait for the turn of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from trimtab.errors import SessionBusy
from trimtab.stores.shared_lock import SharedByName, SharedLock

POLL_INTERVAL_S = 0.05
"""Seconds between two attempts to get a turn that another process has."""


async def _lock_nothing() -> bool:
    return True


async def _unlock_nothing() -> None:
    pass


class TurnQueue:
    """Gives the turn of a session to one request of this process at a time, the first one first.

    What other processes do is known to the store. It passes the function that tries to lock the
    session among them, and the one that unlocks it.
    """

    def __init__(self) -> None:
        self._locks = SharedByName(SharedLock)

    def is_held(self, session: str) -> bool:
        """Whether a request of this process holds the turn."""
        lock = self._locks.get(session)
        return lock is not None and lock.locked()

    @asynccontextmanager
    async def hold(
        self,
        session: str,
        *,
        wait: float,
        try_lock: Callable[[], Awaitable[bool]] = _lock_nothing,
        unlock: Callable[[], Awaitable[None]] = _unlock_nothing,
    ) -> AsyncGenerator[None]:
        """Hold the turn. Raise `SessionBusy` after `wait` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait
        lock = self._locks.get_or_create(session)
        try:
            async with asyncio.timeout_at(deadline):
                await lock.acquire()
        except TimeoutError:
            raise SessionBusy(session, wait) from None
        try:
            while not await try_lock():
                if clock() >= deadline:
                    raise SessionBusy(session, wait)
                await asyncio.sleep(POLL_INTERVAL_S)
            try:
                yield
            finally:
                await unlock()
        finally:
            lock.release()
