"""One lock per key, such as a chat, while a task holds it or waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class KeyedLocks:
    """Creates locks when they are needed. Each is fair: first come, first served."""

    def __init__(self, holders: int = 1) -> None:
        """Initialise the locks. `holders` is the number of tasks that may hold one lock at the
        same time."""
        self._holders = holders
        self._locks: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the lock of a key. Nothing is awaited before the lock is requested."""
        # This variable keeps the lock alive while a task holds it or waits for it.
        lock = self._locks.setdefault(key, asyncio.Semaphore(self._holders))
        async with lock:
            yield
