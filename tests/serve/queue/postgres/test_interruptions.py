"""Turns whose process vanishes or stalls: they are counted, run one at a time, and end."""

from __future__ import annotations

import asyncio
import signal

import pytest
from psycopg import AsyncConnection

from tests.serve.queue.postgres.workers import PACE, asked, member, other, until
from trimtab_serve.queue.postgres.procrastinate_jobs import JobPayload
from trimtab_serve.queue.protocol import MAX_INTERRUPTIONS
from trimtab_serve.service.retries import APOLOGY_TEXT

pytestmark = pytest.mark.anyio

ONE, TWO = "default/helper/one", "default/helper/two"


async def interruptions(conninfo):
    async with await AsyncConnection.connect(conninfo) as connection:
        cursor = await connection.execute("SELECT lock, times FROM trimtab.interruptions")
        return dict(await cursor.fetchall())


async def vanish(idle, *, count=1):
    """Let a worker fetch this many jobs and vanish, and let another process notice."""
    manager = idle.queue.job_queue.app.job_manager
    worker = await manager.register_worker()
    for _ in range(count):
        job = await idle.queue.fetch_job("turns", worker)
        assert job is not None
    await manager.unregister_worker(worker)
    await idle.fleet._take_over_stalled_jobs()


async def test_a_turn_whose_process_vanishes_three_times_is_a_dead_letter_that_can_be_revived(
    conninfo, tmp_path
):
    async with member(conninfo, tmp_path, run=False) as idle:
        await idle.say("hello")
        for times in range(1, MAX_INTERRUPTIONS):
            await vanish(idle)
            assert await interruptions(conninfo) == {ONE: times}
            assert await idle.queue.list_dead_letters() == []
        await vanish(idle)
        (dead,) = await idle.queue.list_dead_letters()
        assert dead.session == ONE
        assert "3 times in a row" in dead.why
        assert [reply.text for reply in await idle.sent()] == [APOLOGY_TEXT]
        assert await idle.queue.revive(ONE)
        assert await interruptions(conninfo) == {}
        async with member(conninfo, tmp_path) as one:
            await one.quiet()
            assert await one.texts() == ["hello", "I am one."]


async def test_a_message_to_a_dead_letter_gives_its_turn_one_more_try_and_not_three(
    conninfo, tmp_path
):
    async with member(conninfo, tmp_path, run=False) as idle:
        await idle.say("hello")
        for _ in range(MAX_INTERRUPTIONS):
            await vanish(idle)
        await idle.say("again")
        assert await idle.queue.list_dead_letters() == []
        await vanish(idle)
        assert [dead.messages for dead in await idle.queue.list_dead_letters()] == [2]


async def test_a_turn_that_ends_is_no_longer_suspected(conninfo, tmp_path):
    async with member(conninfo, tmp_path, run=False) as idle:
        await idle.say("hello")
        await vanish(idle)
        await vanish(idle)
        async with member(conninfo, tmp_path) as one:
            await one.quiet()
        assert await interruptions(conninfo) == {}


async def test_a_worker_that_wakes_up_does_not_undo_or_double_the_count(conninfo, tmp_path):
    async with member(conninfo, tmp_path) as one:
        await one.say("hold on")
        await until(lambda: asked(tmp_path))
        (job,) = await one.queue.job_queue.app.job_manager.list_jobs_async()
        assert job.id is not None
        # Another process takes the job over, and then this one notices that it was stalled.
        payload = JobPayload(session=ONE)
        assert await one.queue.hand_over_job(job.id, job.worker_id, payload, interrupted=True) == 1
        one.fleet._cancel_unheard_jobs(stalled=True)
        await until(lambda: len(asked(tmp_path)) == 2)
        assert await interruptions(conninfo) == {ONE: 1}
        (tmp_path / "go").touch()
        await one.quiet()


async def test_a_turn_that_stalls_its_process_is_counted_although_its_own_process_cancels_it(
    conninfo, tmp_path
):
    async with member(conninfo, tmp_path) as one:
        await one.say("hold on")
        for times in range(1, MAX_INTERRUPTIONS + 1):
            await until(lambda times=times: len(asked(tmp_path)) == times)
            one.fleet._cancel_unheard_jobs(stalled=True)
        await until(one.queue.list_dead_letters)
        assert await interruptions(conninfo) == {ONE: MAX_INTERRUPTIONS}


async def test_a_turn_that_loses_its_database_again_and_again_is_not_suspected(conninfo, tmp_path):
    async with member(conninfo, tmp_path) as one:
        await one.say("hold on")
        for times in range(1, MAX_INTERRUPTIONS + 2):
            await until(lambda times=times: len(asked(tmp_path)) == times)
            one.fleet._cancel_unheard_jobs(stalled=False)
        (tmp_path / "go").touch()
        await one.quiet()
        assert (await one.texts())[-1] == "I am one."


async def test_interrupted_turns_run_one_at_a_time_beside_all_others(conninfo, tmp_path):
    async with member(conninfo, tmp_path, run=False) as idle:
        for number in range(3):
            await idle.say(f"hold {number}", session=f"default/helper/s{number}")
        await vanish(idle, count=3)
        async with member(conninfo, tmp_path) as one:
            await until(lambda: asked(tmp_path))
            for number in range(2):
                await one.say(f"hello {number}", session=f"default/helper/new{number}")
            await until(lambda: sum("hello" in line for line in asked(tmp_path)) == 2)
            assert sum("hold" in line for line in asked(tmp_path)) == 1
            (tmp_path / "go").touch()
            await one.quiet()
            assert sum("hold" in line for line in asked(tmp_path)) == 3


async def test_tenants_take_turns_with_their_interrupted_turns(conninfo, tmp_path):
    sessions = ["evil/helper/a", "evil/helper/b", "evil/helper/c", "acme/helper/a"]
    async with member(conninfo, tmp_path, run=False) as idle:
        for session in sessions:
            await idle.say(session, session=session)
        await vanish(idle, count=4)
        async with member(conninfo, tmp_path) as one:
            await one.quiet()
        assert [line.partition(": ")[2] for line in asked(tmp_path)][:2] == [
            "evil/helper/a",
            "acme/helper/a",
        ]
        assert len(asked(tmp_path)) == 4


async def test_a_deleted_session_leaves_no_count(conninfo, tmp_path):
    async with member(conninfo, tmp_path, run=False) as idle:
        await idle.say("hello")
        await vanish(idle)
        await idle.queue.forget_session(ONE)
        assert await interruptions(conninfo) == {}


@pytest.mark.slow
@pytest.mark.process
async def test_a_turn_that_kills_its_workers_ends_alone(conninfo, tmp_path):
    async with member(conninfo, tmp_path, run=False) as idle:
        await idle.say("hold on", session=TWO)
        deaths = 0
        with other(conninfo, tmp_path, "w0") as first:
            await until(lambda: asked(tmp_path))
            await idle.say("die now")
            await asyncio.to_thread(first.wait)
            deaths += 1
        (tmp_path / "go").touch()
        while not await idle.queue.list_dead_letters():
            with other(conninfo, tmp_path, f"w{deaths}") as process:
                await until(lambda process=process: ended_or_dead(process, idle))
                deaths += process.poll() is not None
        assert deaths == MAX_INTERRUPTIONS
        with other(conninfo, tmp_path, "last"):
            await until(lambda: answered(idle))
        assert [dead.session for dead in await idle.queue.list_dead_letters()] == [ONE]


@pytest.mark.slow
@pytest.mark.process
async def test_a_turn_that_keeps_its_event_loop_busy_is_not_taken_over(conninfo, tmp_path):
    async with member(conninfo, tmp_path, run=False) as idle:
        with other(conninfo, tmp_path, "one"), other(conninfo, tmp_path, "two"):
            # Both have been heard of for long enough to take over from others.
            await asyncio.sleep(2 * PACE.takeover_after_s)
            await idle.say("stall now")
            await idle.quiet()
        assert len(asked(tmp_path)) == 1
        assert await interruptions(conninfo) == {}


@pytest.mark.slow
@pytest.mark.process
async def test_a_process_that_was_stopped_cancels_its_turn_when_it_goes_on(conninfo, tmp_path):
    async with member(conninfo, tmp_path, run=False) as idle:
        with other(conninfo, tmp_path, "one") as first, other(conninfo, tmp_path, "two") as second:
            await idle.say("hold on")
            await until(lambda: asked(tmp_path))
            stopped = asked(tmp_path)[0].partition(":")[0]
            heir = "two" if stopped == "one" else "one"
            process = {"one": first, "two": second}[stopped]
            process.send_signal(signal.SIGSTOP)
            await until(lambda: len(asked(tmp_path)) == 2)
            assert await interruptions(conninfo) == {ONE: 1}
            process.send_signal(signal.SIGCONT)
            log = tmp_path / f"{stopped}.log"
            await until(lambda: "cancelling job" in log.read_text())
            (tmp_path / "go").touch()
            await idle.quiet()
            assert len(asked(tmp_path)) == 2
            assert await idle.texts() == ["hold on", f"I am {heir}."]
            assert len(await idle.sent()) == 1
        assert await interruptions(conninfo) == {}


async def ended_or_dead(process, idle):
    return process.poll() is not None or await idle.queue.list_dead_letters()


async def answered(idle):
    return not await idle.queue.pending(TWO)
