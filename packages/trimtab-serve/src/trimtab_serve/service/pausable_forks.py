"""Pause forks while the data of their tenant is erased.

Otherwise the search of an erasure could miss a copy that is made from another copy meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trimtab.errors import TrimtabError


class ForksPaused(TrimtabError, RuntimeError):
    """Data of this tenant is being erased. Fork the session again after that."""

    def __init__(self) -> None:
        super().__init__("data of this tenant is being erased; fork the session again after that")


class PausableForks:
    """The forks that run in this process, by tenant."""

    def __init__(self) -> None:
        self._pauses = Counter[str]()
        self._running = Counter[str]()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def run(self, tenant: str) -> AsyncGenerator[None]:
        """Run a fork in the block. Raises `ForksPaused`."""
        if self._pauses[tenant]:
            raise ForksPaused
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            async with self._changed:
                self._changed.notify_all()

    @asynccontextmanager
    async def pause(self, tenant: str) -> AsyncGenerator[None]:
        """Let no fork begin, and wait until the running ones have ended."""
        self._pauses[tenant] += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._running[tenant])
            yield
        finally:
            self._pauses[tenant] -= 1
