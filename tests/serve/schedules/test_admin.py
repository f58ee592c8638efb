"""What an operator does beside the process that runs the schedules."""

import asyncio

import pytest

from tests.serve.schedules.places import AGENTS, Files, at, run, schedule
from trimtab_serve.queue.sqlite import database as databases
from trimtab_serve.schedules.command_line_control import open_schedules
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.schedules.store import execute_schedule_command

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")
MORNING = "default/helper/morning"


def where(place):
    return str(place.root) if isinstance(place, Files) else place.conninfo


@pytest.fixture
async def alone(place):
    """Schedules that nobody runs."""
    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON))
        await run(schedules, NOON + 60)
    return place


async def test_all_is_seen_and_done_where_nobody_serves(alone):
    async with open_schedules(where(alone)) as mine:
        assert [one.id for one in await mine.find()] == [MORNING]
        assert [one.due for one in await mine.list_runs(schedule_id=MORNING)] == [NOON + 60]
        assert await execute_schedule_command(mine, "pause", MORNING, NOON)
        assert (await mine.find())[0].paused
        assert await execute_schedule_command(mine, "resume", MORNING, NOON)
        assert not (await mine.find())[0].paused
        assert await execute_schedule_command(mine, "run-now", MORNING, NOON + 90)
        assert [one.due for one in await mine.list_runs()] == [NOON + 90, NOON + 60]
        assert await execute_schedule_command(mine, "remove", MORNING, NOON)
        assert not await execute_schedule_command(mine, "remove", MORNING, NOON)
    async with alone.open():
        assert len(await alone.keys()) == 2


async def test_what_is_done_beside_the_process_that_runs_them_holds_for_it(alone):
    async with alone.open() as serving, open_schedules(where(alone)) as mine:
        for verb in ("pause", "run-now"):
            assert await execute_schedule_command(mine, verb, MORNING, NOON + 90)
        (found,) = await serving.find()
        assert found.paused
        assert await serving.run_next_due(NOON + 180, AGENTS) is None
        assert [one.due for one in await serving.list_runs(limit=1)] == [NOON + 90]
        assert len(await alone.keys()) == 2


async def test_two_that_change_schedules_at_once_lose_nothing(alone):
    async with alone.open() as serving, open_schedules(where(alone)) as mine:
        for number in range(10):
            theirs = [
                store.upsert(schedule(f"{name}{number}", now=NOON))
                for name, store in (("a", serving), ("b", mine))
            ]
            await asyncio.gather(*theirs)
        assert len(await serving.find()) == len(await mine.find()) == 21


async def test_what_is_resumed_beside_the_server_runs_within_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "FOREIGN_WRITE_POLL_S", 0.05)
    place = Files(tmp_path)
    due = []
    async with place.open() as serving:
        await serving.upsert(schedule(when="* * * * *", now=NOON, paused=True))
        place.queue.on_posted = due.append
        runner = ScheduleRunner(serving, AGENTS, clock=lambda: NOON + 120)
        place.queue.database.on_foreign_write.append(runner.wake)
        running = asyncio.create_task(runner.run())
        async with open_schedules(str(tmp_path)) as mine:
            await execute_schedule_command(mine, "resume", MORNING, NOON)
        async with asyncio.timeout(5):
            while not due:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        assert len(await place.keys()) == 1
