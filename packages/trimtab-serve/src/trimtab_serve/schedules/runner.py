"""The channel of schedules: each due run becomes a message, as if a user had written it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from trimtab_serve.metrics.recording import count_schedule_run
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.schedules.protocol import ScheduleNotPosted, ScheduleStore
from trimtab_serve.service.delivery import Undeliverable

SCHEDULE_POLL_S = 15.0
"""Maximum number of seconds between two polls.

The clock may be changed, or another process may add a schedule.
"""

log = logging.getLogger("trimtab.schedules")


class ScheduleRunner:
    """Runs the due schedules of the agents that are served here."""

    name = "schedule"
    routes: Sequence[Any] = ()

    def __init__(
        self,
        schedules: ScheduleStore,
        agents: Collection[str],
        *,
        clock: Callable[[], float] = time.time,
        poll_s: float = SCHEDULE_POLL_S,
    ) -> None:
        self._schedules = schedules
        self._agents = agents
        self._clock = clock
        self._poll_s = poll_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Check the schedules now, because one was added or changed."""
        self._woken.set()

    async def run(self) -> None:
        """Run schedules when they are due, until cancelled. Failed runs are retried."""
        task = asyncio.current_task()
        # Python 3.11 may lose a cancellation inside wait_for, which connection pools use.
        while task is None or not task.cancelling():
            self._woken.clear()
            try:
                wait = await self.run_due()
            except Exception as error:  # noqa: BLE001 - whatever it is, the clock must go on
                log.warning("reading schedules failed; retrying in %g s: %r", self._poll_s, error)
                wait = self._poll_s
            try:
                async with asyncio.timeout(wait):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def run_due(self) -> float:
        """Run what is due now. Return the seconds until the next check."""
        aside: list[str] = []
        while True:
            try:
                ran = await self._schedules.run_next_due(
                    self._clock(), self._agents, excluding=aside
                )
            except ScheduleNotPosted as error:
                count_schedule_run("failed")
                log.warning("%s; retrying in %g s", error, self._poll_s)
                aside.append(error.schedule_id)
                continue
            if ran is None:
                break
            count_schedule_run("ran")
            log.info("ran schedule %s, which was due at %s", ran.id, ran.next_run_at)
        coming = await self._schedules.next_due(self._agents, excluding=aside)
        if coming is None:
            return self._poll_s
        # Another worker may be running it, so this one does not retry at once.
        return min(self._poll_s, max(0.05, coming - self._clock()))

    async def deliver(self, reply: OutboundMessage) -> None:
        """Reject the reply, because results go to the chat that a schedule names."""
        raise Undeliverable(f"a reply cannot be sent to a schedule: {reply.key}")

    async def close(self) -> None:
        """Close the schedule store."""
        await self._schedules.close()
