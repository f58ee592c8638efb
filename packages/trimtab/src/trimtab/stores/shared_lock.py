"""A lock for coroutines, whatever event loop runs them.

A web server that calls `asyncio.run` for each request has an event loop in each thread. An
`asyncio.Lock` does not wake a coroutine of another loop: that would wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary, ref

T = TypeVar("T")

CHECK_INTERVAL_S = 1.0
"""Seconds after which a coroutine that waits looks whether the event loop of a holder has ended."""
STANDSTILL_S = 5.0
"""Seconds for which the event loop of a holder may stand still. A program may run a loop for one
step at a time."""

log = logging.getLogger("trimtab.stores")

_guard = threading.RLock()
"""Held for moments, by whoever reads or changes a lock. It is reentrant because the garbage
collector may end a waiting coroutine meanwhile, in the same thread."""

if hasattr(os, "register_at_fork"):
    # So that no other thread holds it when it is copied.
    os.register_at_fork(
        before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release
    )


@dataclass(slots=True, eq=False)
class _Claim:
    """A coroutine that holds the lock, or waits for it."""

    loop: asyncio.AbstractEventLoop | None
    """Its event loop; None outside of one."""
    task: ref[asyncio.Task[Any]] | None
    """Its task, which may be collected when its loop has ended."""
    may_go_on: asyncio.Future[None] | None = None
    """Done when it is given the lock that it waits for."""
    still_since: float | None = None
    """When it was first seen that its event loop stands still; None if the loop runs."""


class SharedLock:
    """A lock that coroutines of any event loop take one after the other, the first one first.

    It is taken back from a coroutine that can never release it: at once if its event loop was
    closed, and after `STANDSTILL_S` if its loop stands still. In a forked process it is free:
    whoever held it, or waited for it, is not there.

    Args:
        holders: How many coroutines may hold it at the same time.
    """

    def __init__(self, holders: int = 1) -> None:
        self._max_holders = holders
        self._begin()

    def _begin(self) -> None:
        self._holders: list[_Claim] = []
        self._waiters: list[_Claim] = []
        self._pid = os.getpid()

    def locked(self) -> bool:
        """Whether nobody else may take it now."""
        return len(self._holders) == self._max_holders and self._pid == os.getpid()

    @property
    def waiters(self) -> int:
        """How many coroutines wait for it."""
        return len(self._waiters)

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        with _guard:
            if self._pid != os.getpid():
                self._begin()
            self._drop_lost_holders()
            is_free = len(self._holders) < self._max_holders
            if is_free:
                self._holders.append(_make_claim())
            return is_free

    async def acquire(self) -> None:
        """Take the lock as soon as it is free."""
        with _guard:
            if self.try_acquire():
                return
            claim = _make_claim()
            claim.may_go_on = asyncio.get_running_loop().create_future()
            self._waiters.append(claim)
        try:
            while not claim.may_go_on.done():
                # Nobody says that the event loop of a holder has ended.
                await asyncio.wait([claim.may_go_on], timeout=CHECK_INTERVAL_S)
                with _guard:
                    self._drop_lost_holders()
                    self._wake_waiters()
        except BaseException:
            with _guard:
                if claim in self._waiters:
                    self._waiters.remove(claim)
                else:  # it was given the lock while it was cancelled
                    self._drop_holder(claim)
            raise

    def release(self) -> None:
        """Give the lock to the coroutine that has waited longest.

        It does nothing for a coroutine from which the lock was taken back.
        """
        own = _make_claim()
        with _guard:
            claims = [
                *(claim for claim in self._holders if own.task and claim.task == own.task),
                *(claim for claim in self._holders if claim.loop is own.loop),
            ]
            if claims:
                self._drop_holder(claims[0])
            else:  # the garbage collector ends a coroutine of a closed loop
                self._drop_lost_holders()
                self._wake_waiters()

    def _drop_holder(self, claim: _Claim) -> None:
        if claim in self._holders:
            self._holders.remove(claim)
        self._wake_waiters()

    def _drop_lost_holders(self) -> None:
        """Take the lock back from those whose event loop cannot release it any more."""
        for claim in [*self._holders]:
            if claim.loop is None or claim.loop.is_running():
                claim.still_since = None
            elif claim.loop.is_closed():
                self._holders.remove(claim)
            elif claim.still_since is None:
                claim.still_since = time.monotonic()
            elif time.monotonic() - claim.still_since >= STANDSTILL_S:
                log.warning(
                    "a lock was taken back from an event loop that has stood still for %g s; "
                    "close an event loop that is not used any more",
                    STANDSTILL_S,
                )
                self._holders.remove(claim)

    def _wake_waiters(self) -> None:
        """Give what is free to those who have waited longest. One whose event loop stands still
        keeps its place, and asks again when its loop runs."""
        for claim in [*self._waiters]:
            if len(self._holders) == self._max_holders:
                return
            if claim.loop is None or claim.may_go_on is None or claim.loop.is_closed():
                self._waiters.remove(claim)
            elif claim.loop.is_running():
                try:
                    claim.loop.call_soon_threadsafe(_wake, claim.may_go_on)
                except RuntimeError:  # it was closed in this moment
                    continue
                self._waiters.remove(claim)
                self._holders.append(claim)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.release()


def _make_claim() -> _Claim:
    """Return a claim of the running coroutine."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _Claim(loop=None, task=None)
    task = asyncio.current_task(loop)
    return _Claim(loop=loop, task=None if task is None else ref(task))


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
