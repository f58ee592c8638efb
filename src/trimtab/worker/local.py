"""Turns in this process: at most one of a session, so many at a time, and retries that wait.

For one machine on files. On PostgreSQL a queue does the same for many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque

from trimtab.observe.serving import turn_put_off
from trimtab.stores.errors import StoreError
from trimtab.worker.retries import Retries
from trimtab.worker.service import NoAgent, Service
from trimtab.worker.turns import PATIENCE, Attempt

log = logging.getLogger("trimtab.worker")


class LocalTurns:
    """Runs what is due. The mail calls `due` for each letter that was posted.

    Tenants take turns, and so do the sessions of each: whoever has much to do waits for himself.
    """

    def __init__(
        self, service: Service, *, at_once: int = 32, tenant_at_once: int | None = None
    ) -> None:
        self._service = service
        self._at_once = at_once
        self._tenant_at_once = tenant_at_once or at_once
        self._queues: OrderedDict[str, deque[str]] = OrderedDict()
        self._queued: set[str] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._of_tenant = Counter[str]()
        self._again: set[str] = set()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._gathering: dict[str, float] = {}
        self._failing: dict[str, Retries] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._open = True

    @property
    def running(self) -> int:
        """Turns that run now."""
        return len(self._running)

    def due(self, session: str) -> None:
        """A turn of this session is to run; if one runs, another follows it."""
        if not self._open:
            return
        self._quiet.clear()
        if session in self._running:
            self._again.add(session)
        elif session in self._gathering or (
            session not in self._later and session not in self._queued
        ):
            self._gather(session)

    async def resume(self) -> int:
        """Take up what an earlier process has left; returns how many sessions."""
        waiting = await self._service.mail.waiting()
        for session in waiting:
            self.due(session)
        return len(waiting)

    async def drain(self, seconds: float) -> int:
        """Begin nothing more and let what runs end; returns how many turns were cut off.

        What is cut off is not lost: the letters wait, and the next process goes on from the log.
        """
        self._open = False
        for timer in self._later.values():
            timer.cancel()
        for waiting in (self._later, self._gathering, self._queues, self._queued, self._again):
            waiting.clear()
        running = list(self._running.values())
        if not running:
            self._look_around()
            return 0
        _, left = await asyncio.wait(running, timeout=seconds)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)

    async def idle(self) -> None:
        """Wait until nothing runs or is to run, retries included."""
        await self._quiet.wait()

    def _gather(self, session: str) -> None:
        """Wait until nothing more comes for a moment: people write in pieces."""
        try:
            pause = self._service.agent_of(session).spec.session.debounce
        except NoAgent:
            pause = 0.0  # the turn says so
        if not pause:
            self._queue(session)
            return
        now = asyncio.get_running_loop().time()
        since = self._gathering.setdefault(session, now)
        if (timer := self._later.pop(session, None)) is not None:
            timer.cancel()
        self._wait(session, max(0.0, min(pause, since + PATIENCE * pause - now)))

    def _wait(self, session: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._later[session] = loop.call_later(seconds, self._queue, session)

    def _queue(self, session: str) -> None:
        self._later.pop(session, None)
        self._gathering.pop(session, None)
        self._queued.add(session)
        self._queues.setdefault(_tenant(session), deque()).append(session)
        self._begin()

    def _begin(self) -> None:
        while self._open and len(self._running) < self._at_once:
            session = self._next()
            if session is None:
                return
            self._of_tenant[_tenant(session)] += 1
            task = asyncio.create_task(self._run(session), name=f"turn of {session}")
            self._running[session] = task
            task.add_done_callback(lambda _, session=session: self._ended(session))

    def _next(self) -> str | None:
        """The session that waits longest, of the tenant that was last served longest ago."""
        for tenant, queue in self._queues.items():
            if self._of_tenant[tenant] < self._tenant_at_once:
                session = queue.popleft()
                self._queued.discard(session)
                self._queues.move_to_end(tenant)
                if not queue:
                    del self._queues[tenant]
                return session
        return None

    async def _run(self, session: str) -> None:
        attempt = Attempt()
        try:
            await self._service.answer(session, gather=False, attempt=attempt)
            await self._go_on(session)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._open or task is None or task.cancelling():
                raise
            broken = RuntimeError("something cancelled itself in the turn")
            await self._failed(session, broken, attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, the letters must not be lost
            await self._failed(session, error, attempt)
        else:
            self._failing.pop(session, None)

    async def _go_on(self, session: str) -> None:
        """More than one turn takes, or left by another process."""
        if session not in self._again and await self._service.mail.pending(session, limit=1):
            self._again.add(session)

    async def _failed(self, session: str, error: Exception, attempt: Attempt) -> None:
        mail, retries = self._service.mail, self._failing.setdefault(session, Retries())
        wait = retries.after(error)
        if wait is None:
            try:
                if not await retries.give_up(mail, session, error, attempt.epoch):
                    await self._go_on(session)
            except StoreError as worse:
                wait = retries.after(worse)
            else:
                del self._failing[session]
                return
        wait = wait or 0.0
        turn_put_off()
        log.warning("turn of %s failed, again in %.1f s: %r", session, wait, error)
        if self._open:
            self._wait(session, wait)

    def _ended(self, session: str) -> None:
        del self._running[session]
        tenant = _tenant(session)
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]
        again = session in self._again
        self._again.discard(session)
        if again and self._open and session not in self._later:
            self._gather(session)
        self._begin()
        self._look_around()

    def _look_around(self) -> None:
        if not self._running and not self._queued and not self._later:
            self._quiet.set()


def _tenant(session: str) -> str:
    return session.partition("/")[0]
