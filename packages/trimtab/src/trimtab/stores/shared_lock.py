"""A lock for coroutines, whatever event loop runs them.

A web server that calls `asyncio.run` for each request has an event loop in each thread. An
`asyncio.Lock` does not wake a coroutine of another loop: that would wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

_guard = threading.RLock()
"""Held for moments, by whoever reads or changes a lock. It is reentrant because the garbage
collector may end a waiting coroutine meanwhile, in the same thread."""

if hasattr(os, "register_at_fork"):
    # So that no other thread holds it when it is copied.
    os.register_at_fork(
        before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release
    )


class SharedLock:
    """A lock that coroutines of any event loop take one after the other, the first one first.

    In a forked process it is free: whoever held it, or waited for it, is not there.

    Args:
        holders: How many coroutines may hold it at the same time.
    """

    def __init__(self, holders: int = 1) -> None:
        self._max_holders = holders
        self._begin()

    def _begin(self) -> None:
        self._holders = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._pid = os.getpid()

    def locked(self) -> bool:
        """Whether nobody else may take it now."""
        return self._holders == self._max_holders and self._pid == os.getpid()

    @property
    def waiters(self) -> int:
        """How many coroutines wait for it."""
        return len(self._waiters)

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        with _guard:
            if self._pid != os.getpid():
                self._begin()
            is_free = self._holders < self._max_holders
            self._holders += is_free
            return is_free

    async def acquire(self) -> None:
        """Take the lock as soon as it is free."""
        with _guard:
            if self.try_acquire():
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            with _guard:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                else:  # it was given the lock while it was cancelled
                    self.release()
            raise

    def release(self) -> None:
        """Give the lock to the coroutine that has waited longest."""
        with _guard:
            while self._waiters:
                waiter = self._waiters.popleft()
                try:
                    waiter.get_loop().call_soon_threadsafe(_wake, waiter)
                except RuntimeError:  # its loop is closed
                    continue
                return
            self._holders -= 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.release()


class SharedByName(Generic[T]):
    """A value for each name, such as its lock, as long as somebody keeps it."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._values: WeakValueDictionary[str, T] = WeakValueDictionary()

    def get(self, name: str) -> T | None:
        """Return the value of a name; None if nobody keeps one."""
        return self._values.get(name)

    def get_or_create(self, name: str) -> T:
        """Return the value of a name. Keep it as long as there must be no other one."""
        with _guard:  # two threads would create two
            return self._values.setdefault(name, self._create())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # else it was cancelled, and gives the lock to the next one
        waiter.set_result(None)
