"""The channel of schedules: each due run becomes a message."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from trimtab_serve.metrics.recording import count_schedule_run
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.schedules.schedule import MAX_CLOCK_LEAD_S, Schedule, corrected_schedule
from trimtab_serve.schedules.store import ScheduleNotPosted, ScheduleStore
from trimtab_serve.schedules.triggers import format_time_in_zone
from trimtab_serve.service.delivery import Undeliverable

SCHEDULE_POLL_S = 15.0
"""Maximum number of seconds between two polls.

The clock may be changed, or another process may add a schedule.
"""

CORRECTION_INTERVAL_S = 3_600.0
"""Seconds between two checks whether a clock was ahead."""
MAX_CORRECTED_SCHEDULES = 100_000
"""Maximum number of schedules of one agent that a check reads."""

log = logging.getLogger("trimtab.schedules")


def _format_due_time(schedule: Schedule) -> str:
    zone = schedule.trigger.timezone
    return "-" if schedule.next_run_at is None else format_time_in_zone(schedule.next_run_at, zone)


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
        self._clock_offset = math.inf
        self._corrected_at = -math.inf

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
        await self._correct_after_clock_change()
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
            log.info("ran schedule %s, which was due at %s", ran.id, _format_due_time(ran))
        coming = await self._schedules.next_due(self._agents, excluding=aside)
        if coming is None:
            return self._poll_s
        # Another worker may be running it, so this one does not retry at once.
        return min(self._poll_s, max(0.05, coming - self._clock()))

    async def _correct_after_clock_change(self) -> None:
        """Correct schedules that a clock which was ahead has moved too far.

        Check at the start, when the clock was set back, and sometimes, because the clock of another
        process may have been ahead.
        """
        monotonic_now = time.monotonic()
        now = self._clock()
        offset = now - monotonic_now
        was_set_back = offset < self._clock_offset - MAX_CLOCK_LEAD_S
        self._clock_offset = offset
        if not was_set_back and monotonic_now - self._corrected_at < CORRECTION_INTERVAL_S:
            return
        for agent in self._agents:
            for schedule in await self._schedules.find(agent=agent, limit=MAX_CORRECTED_SCHEDULES):
                await asyncio.sleep(0)  # there may be many
                new_schedule = corrected_schedule(schedule, now)
                if new_schedule is not schedule and await self._schedules.correct(schedule.id, now):
                    log.warning(
                        "schedule %s was due next at %s, which a clock that was ahead has set; it "
                        "is due at %s",
                        schedule.id,
                        _format_due_time(schedule),
                        _format_due_time(new_schedule),
                    )
        self._corrected_at = monotonic_now

    async def deliver(self, reply: OutboundMessage) -> None:
        """Reject the reply, because results go to the chat that a schedule names."""
        raise Undeliverable(f"a reply cannot be sent to a schedule: {reply.key}")

    async def close(self) -> None:
        """Do nothing, because the schedules are in the database of the queue."""
