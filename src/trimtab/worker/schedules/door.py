"""The clock as a door: what is due becomes a letter, as if somebody had said it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from trimtab.observe.serving import schedule_fired
from trimtab.worker.delivery import Never
from trimtab.worker.letters import Outbound
from trimtab.worker.schedules.schedules import CannotRun, Schedules

LOOK = 15.0
"""Seconds between two looks at most: a clock may be set, another process may add something."""

log = logging.getLogger("trimtab.schedules")


class ScheduleDoor:
    """Runs what is due for the agents that are served here."""

    name = "schedule"
    routes: Sequence[Any] = ()

    def __init__(
        self,
        schedules: Schedules,
        agents: Collection[str],
        *,
        clock: Callable[[], float] = time.time,
        look: float = LOOK,
    ) -> None:
        self._schedules = schedules
        self._agents = agents
        self._clock = clock
        self._look = look
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A schedule was added or changed: it may be due sooner than all others."""
        self._woken.set()

    async def run(self) -> None:
        """Run what is due when it is, until cancelled; what cannot be run is tried again."""
        task = asyncio.current_task()
        # Python 3.11 may lose a cancellation inside wait_for, which pools of connections use.
        while task is None or not task.cancelling():
            self._woken.clear()
            try:
                wait = await self.once()
            except Exception as error:  # noqa: BLE001 - whatever it is, the clock must go on
                log.warning("schedules cannot be looked at, again in %g s: %r", self._look, error)
                wait = self._look
            try:
                async with asyncio.timeout(wait):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def once(self) -> float:
        """Run what is due now; returns the seconds until it is worth looking again."""
        aside: list[str] = []
        while True:
            try:
                ran = await self._schedules.run_next(self._clock(), self._agents, without=aside)
            except CannotRun as error:
                schedule_fired("failed")
                log.warning("%s; again in %g s", error, self._look)
                aside.append(error.schedule)
                continue
            if ran is None:
                break
            schedule_fired("ran")
            log.info("%s was due at %s", ran.id, ran.next_run_at)
        coming = await self._schedules.next_due(self._agents, without=aside)
        if coming is None:
            return self._look
        # Another worker may have it in hand: it is not asked for again and again.
        return min(self._look, max(0.05, coming - self._clock()))

    async def deliver(self, reply: Outbound) -> None:
        """Nothing is delivered to a clock: results go to the chat that a schedule names."""
        raise Never(f"a schedule is no place to send {reply.key} to")

    async def close(self) -> None:
        """Give back the schedules."""
        await self._schedules.close()
