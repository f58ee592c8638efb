"""One lock for each key, such as a chat, as long as somebody holds it or waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class KeyedLocks:
    """Locks that are made when they are needed. Each is fair: first come, first served."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the lock of a key; nothing is awaited before it is asked for."""
        # Whoever holds it or waits for it has it in this variable, so it lives as long as needed.
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield
