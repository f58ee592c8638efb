"""Workers that die, are cut off, or lose their database: their turns are taken over, and once."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace

import pytest
from psycopg import conninfo as addresses

from tests.serve.queue.postgres import databases
from tests.serve.queue.postgres.network import passing, room
from tests.serve.queue.postgres.workers import PACE, asked, member, other, until
from tests.soak.crash.cluster import cluster, programs
from trimtab.engine.log.event import TurnProgressRecord
from trimtab.errors import StoreUnavailable
from trimtab_serve.process.heartbeat import Heartbeat
from trimtab_serve.queue.postgres.procrastinate_jobs import JobPayload

pytestmark = pytest.mark.anyio

ONE = "default/helper/one"


async def jobs(one):
    return [*await one.queue.job_queue.app.job_manager.list_jobs_async()]


@pytest.mark.process
async def test_a_worker_that_is_killed_is_taken_over_and_its_session_answered_once(
    conninfo, tmp_path
):
    async with member(conninfo, tmp_path, run=False) as idle:
        with other(conninfo, tmp_path, "one") as first, other(conninfo, tmp_path, "two") as second:
            await idle.say("hold on")
            await until(lambda: asked(tmp_path))
            holder = asked(tmp_path)[0].partition(":")[0]
            await idle.say("and more")
            {"one": first, "two": second}[holder].kill()
            heir = "two" if holder == "one" else "one"
            await until(lambda: len(asked(tmp_path)) == 2)
            (tmp_path / "go").touch()
            await idle.quiet()
            assert asked(tmp_path)[:2] == [f"{holder}: hold on", f"{heir}: and more"]
            assert await idle.texts() == ["hold on", "and more", f"I am {heir}."]
            assert len(await idle.sent()) == 1


@pytest.mark.process
async def test_a_worker_that_is_cut_off_loses_its_turn_and_changes_nothing_when_it_is_back(
    conninfo, tmp_path
):
    told = addresses.conninfo_to_dict(conninfo)
    server = str(told["host"]), int(told.get("port") or 5432)
    async with member(conninfo, tmp_path, run=False) as idle:
        with ExitStack() as held:
            rooms = {name: held.enter_context(room(n)) for n, name in enumerate(("one", "two"), 1)}
            async with (
                passing(rooms["one"].gate, server) as port,
                passing(rooms["two"].gate, server) as second,
            ):
                for name, at in (("one", port), ("two", second)):
                    found = addresses.make_conninfo(conninfo, host=rooms[name].gate, port=at)
                    begun = other(found, tmp_path, name, before=rooms[name].before)
                    await asyncio.to_thread(held.enter_context, begun)
                await cut_off(idle, rooms, tmp_path)


async def cut_off(idle, rooms, folder):
    await idle.say("hold on")
    await until(lambda: asked(folder))
    cut = asked(folder)[0].partition(":")[0]
    heir = "two" if cut == "one" else "one"
    rooms[cut].cut()
    await until(lambda: len(asked(folder)) == 2)
    assert asked(folder)[1] == f"{heir}: hold on"
    await idle.say("next")
    before = [(job.id, job.status, job.worker_id) for job in await jobs(idle)]
    assert [status for _, status, _ in before] == ["doing", "todo"]
    # The model of the one that is cut off answers; what it writes is on its way when it is back.
    (folder / f"go.{cut}").touch()
    rooms[cut].join()
    log = folder / f"{cut}.log"
    await until(lambda: "was taken over" in log.read_text())
    await until(lambda: "was not recorded; another worker takes the job over" in log.read_text())
    assert [(job.id, job.status, job.worker_id) for job in await jobs(idle)] == before
    assert len(asked(folder)) == 2
    assert await idle.texts() == ["hold on"]
    (folder / f"go.{heir}").touch()
    await idle.quiet()
    (last,) = {line.partition(":")[0] for line in asked(folder)[2:]}
    assert await idle.texts() == ["hold on", f"I am {heir}.", "next", f"I am {last}."]
    claims = [
        event.body.epoch
        async for event in idle.service.store.events(ONE)
        if isinstance(event.body, TurnProgressRecord) and event.body.state == "claimed"
    ]
    assert claims == [1, 2, 3]
    assert len(await idle.sent()) == 2


async def test_a_turn_that_was_taken_over_is_broken_off_before_it_asks_again(conninfo, tmp_path):
    async with member(conninfo, tmp_path) as one:
        await one.say("hold on")
        await until(lambda: asked(tmp_path))
        (job,) = await jobs(one)
        assert await one.queue.hand_over_job(
            job.id, job.worker_id, JobPayload(session=ONE), interrupted=True
        )
        await until(lambda: len(asked(tmp_path)) == 2)
        assert one.fleet.cancelled_jobs == 1
        (tmp_path / "go").touch()
        await one.quiet()
        assert await one.texts() == ["hold on", "I am one."]


async def test_a_process_that_nobody_hears_of_breaks_off_its_turns(conninfo, tmp_path, monkeypatch):
    async with member(conninfo, tmp_path, pace=replace(PACE, self_cancel_after_s=0.5)) as one:
        await one.say("hold on")
        await until(lambda: asked(tmp_path))
        monkeypatch.setattr(Heartbeat, "_beat", lambda _: None)
        await until(lambda: one.fleet.cancelled_jobs)
        monkeypatch.undo()
        (tmp_path / "go").touch()
        await one.quiet()
        assert await one.texts() == ["hold on", "I am one."]


@pytest.mark.process
async def test_a_fleet_goes_on_when_its_database_is_back(tmp_path):
    where = programs()
    if where is None:
        pytest.skip("the programs of a PostgreSQL server are not installed")
    with cluster(where) as server:
        await databases.migrate(server.conninfo)
        async with member(server.conninfo, tmp_path) as one:
            await one.say("hold on")
            await until(lambda: asked(tmp_path))
            await one.say("before")
            await asyncio.to_thread(server.stop)
            (tmp_path / "go").touch()
            await asyncio.to_thread(server.start)
            await until(lambda: posted(one, "behind"))
            await one.quiet()
            texts = await one.texts()
            said = [text for text in texts if not text.startswith("I am")]
            assert said == ["hold on", "before", "behind"]
            assert texts[-1] == "I am one."
            assert len(await one.sent()) == texts.count("I am one.")


async def posted(one, text):
    try:
        await one.say(text)
    except StoreUnavailable:
        return False
    return True
