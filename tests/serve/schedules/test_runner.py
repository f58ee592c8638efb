"""The runner of schedules: it runs what is due when it is, and sleeps until then."""

import asyncio
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.serve.schedules.places import AGENTS, CHAT, at, schedule
from trimtab.errors import StoreUnavailable
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.service.delivery import Undeliverable

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")


@asynccontextmanager
async def running(runner):
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds):
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - whatever it is, nobody signals it
            await asyncio.sleep(0.01)


async def test_what_is_added_meanwhile_is_run_when_it_is_due(kept, place):
    runner = ScheduleRunner(kept, AGENTS, poll_s=600)
    async with running(runner):
        soon = float(int(time.time()) + 1)
        await kept.upsert(schedule(when="* * * * *", now=soon, next_run_at=soon))
        runner.wake()
        await until(place.keys)
    (inbound,) = await place.messages()
    assert inbound.message.text == "What is new?"
    assert (inbound.session, inbound.route.channel) == (
        "default/helper/telegram:123456",
        "telegram",
    )
    assert inbound.at >= soon


class Counted:
    """Schedules that count how often they are asked, and cannot be reached at first."""

    def __init__(self, kept, failures):
        self._kept = kept
        self.asked = 0
        self.failures = failures

    async def run_next_due(self, *args, **how):
        self.asked += 1
        if self.asked <= self.failures:
            raise StoreUnavailable("not now")
        return await self._kept.run_next_due(*args, **how)

    async def next_due(self, *args, **how):
        return await self._kept.next_due(*args, **how)

    async def find(self, **which):
        return await self._kept.find(**which)


async def test_it_looks_when_something_is_due_and_not_all_the_time(kept):
    await kept.upsert(schedule(now=NOON))
    counted: Any = Counted(kept, 0)
    far = ScheduleRunner(counted, AGENTS, clock=lambda: NOON)
    assert await far.run_due() == 15.0
    near = ScheduleRunner(counted, AGENTS, clock=lambda: at("2026-11-16 07:59:57"))
    assert await near.run_due() == 3.0

    async def looked(times):
        return counted.asked == 2 + times

    async with running(ScheduleRunner(counted, AGENTS, clock=lambda: NOON, poll_s=600)) as runner:
        await until(lambda: looked(1))
        runner.wake()
        await until(lambda: looked(2))
        # It has gone back to sleep: others run, and it does not ask again.
        for _ in range(50):
            await kept.find()
    assert counted.asked == 4


async def test_a_store_that_is_away_does_not_end_it(kept, place):
    await kept.upsert(schedule(when="* * * * *", now=NOON))
    away: Any = Counted(kept, 2)
    runner = ScheduleRunner(away, AGENTS, clock=lambda: NOON + 60, poll_s=0.01)
    async with running(runner):
        await until(place.keys)


TWO_DAYS = 2 * 86_400


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
async def test_a_clock_that_was_two_days_ahead_for_a_minute_silences_nothing(
    kept, place, caplog, when
):
    for name, rule in (("tick", "* * * * *"), ("yearly", "0 8 1 1 *")):
        await kept.upsert(schedule(name, rule, now=NOON))
    now = [NOON + TWO_DAYS]
    runner = ScheduleRunner(kept, AGENTS, clock=lambda: now[0])
    await runner.run_due()
    assert await kept.next_due(AGENTS) == NOON + TWO_DAYS + 60
    before = len(await place.keys())
    now[0] = NOON
    if when == "at the start":
        runner = ScheduleRunner(kept, AGENTS, clock=lambda: now[0])
    await runner.run_due()
    assert await kept.next_due(AGENTS) == NOON + 60
    (line,) = [record.getMessage() for record in caplog.records if "ahead" in record.getMessage()]
    assert line.startswith("schedule default/helper/tick was due next at ")
    now[0] = NOON + 60
    await runner.run_due()
    assert len(await place.keys()) == before + 1


async def test_a_clock_that_is_ahead_by_a_minute_in_another_process_changes_nothing(kept):
    await kept.upsert(schedule(when="* * * * *", now=NOON))
    for now in (NOON + 60, NOON, NOON + 60, NOON):
        await ScheduleRunner(kept, AGENTS, clock=lambda now=now: now).run_due()
        assert await kept.next_due(AGENTS) == NOON + 120


class Deaf:
    """Schedules that lose one cancellation, as `wait_for` of Python 3.11 may within a pool."""

    def __init__(self):
        self.asked = asyncio.Event()
        self.lost = False

    async def run_next_due(self, *args, **how):
        self.asked.set()
        if self.lost:
            return
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.lost = True

    async def next_due(self, *args, **how):
        return None

    async def find(self, **which):
        return []


async def test_it_ends_when_it_is_asked_to_though_the_cancellation_was_lost():
    deaf: Any = Deaf()
    task = asyncio.create_task(ScheduleRunner(deaf, AGENTS, poll_s=0.01).run())
    await deaf.asked.wait()
    task.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([task])
    assert task.done()


async def test_nothing_is_delivered_to_a_clock(kept):
    runner = ScheduleRunner(kept, AGENTS)
    reply = OutboundMessage(session="s", seq=1, text="x", route=CHAT, key="k")
    with pytest.raises(Undeliverable):
        await runner.deliver(reply)
    assert (runner.name, runner.routes) == ("schedule", ())
