"""What an operator does beside the process that runs the schedules."""

import asyncio
import json

import pytest

from tests.server.schedules.places import AGENTS, Files, at, run, schedule
from trimtab.errors import StoreUnavailable
from trimtab.server.schedules import command_line_control as desks
from trimtab.server.schedules.command_files import (
    ScheduleControlRequest,
    write_schedule_command_file,
)
from trimtab.server.schedules.command_line_control import open_schedule_admin

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")
MORNING = "default/helper/morning"


def where(place):
    return str(place.root) if isinstance(place, Files) else place.conninfo


def asked(verb, name=MORNING, when=NOON):
    return ScheduleControlRequest(verb=verb, schedule=name, at=when)


@pytest.fixture
async def alone(place):
    """Schedules that nobody runs."""
    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON))
        await run(schedules, NOON + 60)
    return place


async def test_all_is_seen_and_done_where_nobody_serves(alone):
    async with open_schedule_admin(where(alone)) as mine:
        assert [one.id for one in await mine.list_schedules()] == [MORNING]
        assert [one.due for one in await mine.list_runs(MORNING, 10)] == [NOON + 60]
        assert await mine.execute(asked("pause"))
        assert (await mine.list_schedules())[0].paused
        assert await mine.execute(asked("resume"))
        assert not (await mine.list_schedules())[0].paused
        assert await mine.execute(asked("run-now", when=NOON + 90))
        assert [one.due for one in await mine.list_runs(None, 10)] == [NOON + 90, NOON + 60]
        assert await mine.execute(asked("remove"))
        assert not await mine.execute(asked("remove"))
    async with alone.open():
        assert len(await alone.keys()) == 2


async def test_the_process_that_runs_them_does_what_it_is_asked(alone):
    async with alone.open() as serving, open_schedule_admin(where(alone)) as mine:
        for verb in ("pause", "run-now"):
            doing = asyncio.create_task(mine.execute(asked(verb, when=NOON + 90)))
            async with asyncio.timeout(10):
                while not doing.done():
                    await serving.run_next_due(NOON, AGENTS)
            assert await doing
        (found,) = await serving.find()
        assert found.paused
        assert [one.due for one in await mine.list_runs(None, 1)] == [NOON + 90]
        assert len(await alone.keys()) == 2


@pytest.fixture
def folder(tmp_path):
    return Files(tmp_path)


async def test_what_a_crash_leaves_asked_is_done_once(folder):
    async with folder.open() as serving:
        await serving.upsert(schedule(now=NOON))
        for _ in range(2):
            write_schedule_command_file(folder.root / ".schedules", asked("run-now"))
            await serving.run_next_due(NOON, AGENTS)
        assert len(await serving.list_runs()) == len(await folder.keys()) == 1


async def test_what_cannot_be_done_holds_up_nobody_and_stays_asked(folder):
    async with folder.open() as serving:
        await serving.upsert(schedule(when="* * * * *", now=NOON))
        await serving.upsert(schedule("full", session="default/helper/full", now=NOON))
        folder.refused.add("default/helper/full")
        path = write_schedule_command_file(
            folder.root / ".schedules", asked("run-now", "default/helper/full")
        )
        assert await serving.run_next_due(NOON + 60, AGENTS) is not None
        assert path.exists()
        folder.refused.clear()
        await serving.run_next_due(NOON + 60, AGENTS)
        assert not path.exists()


async def test_nonsense_among_what_is_asked_is_put_away(folder):
    async with folder.open() as serving:
        aside = folder.root / ".schedules/asked"
        aside.mkdir()
        for number, text in enumerate(("{", "[]", json.dumps({"verb": "dance"}), "{}")):
            (aside / f"{number}.json").write_text(text)
        assert await serving.run_next_due(NOON, AGENTS) is None
        assert list(aside.iterdir()) == []


async def test_a_process_that_does_not_listen_is_named_and_asked_no_more(folder, monkeypatch):
    monkeypatch.setattr(desks, "COMMAND_TIMEOUT_S", 0.0)
    async with folder.open() as serving, open_schedule_admin(str(folder.root)) as mine:
        await serving.upsert(schedule(now=NOON))
        with pytest.raises(StoreUnavailable, match=r"process that holds .*\.schedules has not"):
            await mine.execute(asked("pause"))
        assert list((folder.root / ".schedules/asked").iterdir()) == []
