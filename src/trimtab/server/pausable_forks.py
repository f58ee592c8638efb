"""Forks wait for nobody, and nobody who erases may miss one: while a user or a tenant is erased, no
copy of the tenant's sessions is made. Else a copy that is made of a copy is found by no search."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trimtab.errors import TrimtabError


class ForksPaused(TrimtabError, RuntimeError):
    """Something of the tenant is being erased: fork again when that is done."""

    def __init__(self) -> None:
        super().__init__("data of this tenant is being erased; fork the session again after that")


class PausableForks:
    """Forks of this process, by tenant."""

    def __init__(self) -> None:
        self._pauses = Counter[str]()
        self._running = Counter[str]()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def run(self, tenant: str) -> AsyncGenerator[None]:
        """Make a fork within; raises `ForksPaused`."""
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
        """Let no fork begin, and wait until those that run have ended."""
        self._pauses[tenant] += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._running[tenant])
            yield
        finally:
            self._pauses[tenant] -= 1
