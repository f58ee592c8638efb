"""Processes that race, and processes that are killed: each run happens once."""

import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import warm
from tests.serve.schedules.places import AGENTS, Files, Postgres, Refuses, at, run, schedule
from trimtab_serve.schedules.store import ScheduleNotPosted

pytestmark = [pytest.mark.anyio, pytest.mark.process]
NOON = at("2026-11-15 12:00")
ROOT = Path(__file__).parents[3]


@contextmanager
def racer(what, where):
    command = [
        sys.executable,
        "-m",
        "tests.serve.schedules.racing_process",
        what,
        str(where),
        str(NOON),
    ]
    with warm.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.kill()


async def test_two_processes_on_one_database_run_each_once(database):
    place = Postgres(database)
    names = [f"s{n}" for n in range(6)]
    async with place.open() as schedules:
        for name in names:
            await schedules.upsert(schedule(name, when="* * * * *", now=NOON, catch_up="all"))
    with racer("race", database) as one, racer("race", database) as other:
        for _, out in (one, other):
            assert out.readline() == "ready\n"
        for into, _ in (one, other):
            into.write("go\n")
            into.flush()
        counts = [int(out.readline()) for _, out in (one, other)]
    async with place.open() as schedules:
        keys, runs = await place.keys(), await schedules.list_runs(limit=9999)
    assert len(keys) == len(set(keys)) == len(names) * 20
    assert Counter((line.schedule, line.due) for line in runs).most_common(1)[0][1] == 1
    assert len(runs) == len(names) * 20
    assert all(counts), "one of them did all the work: there was no race"


async def test_a_run_is_a_message_and_a_job_in_one_transaction_or_neither(database):
    def jobs():
        with psycopg.connect(database) as connection:
            query = "SELECT count(*) FROM trimtab_queue.procrastinate_jobs"
            return connection.execute(query).fetchall()[0][0]

    class SecondMessageRefused(Postgres):
        posted = 0

        def check(self, inbound):
            self.posted += 1
            if self.posted == 2:
                raise Refuses(inbound.key)

    place = SecondMessageRefused(database)
    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON - 120, catch_up="all"))
        with pytest.raises(ScheduleNotPosted):
            await schedules.run_next_due(NOON, AGENTS)
        assert (await place.keys(), jobs(), await schedules.list_runs()) == ([], 0, [])
        assert await schedules.next_due(AGENTS) == NOON - 60
        assert await run(schedules, NOON) == 1
        # One job for the session, whatever number of messages it has.
        assert (len(await place.keys()), jobs(), len(await schedules.list_runs())) == (2, 1, 2)


async def test_a_process_killed_between_claim_and_message_leaves_the_run_to_others(database):
    place = Postgres(database)
    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON - 60))
        with racer("claimed", database) as (_, out):
            assert out.readline() == "claimed\n"
            # It is that one's: nobody waits for it.
            assert await run(schedules, NOON) == 0
        deadline = 100
        while await schedules.run_next_due(NOON, AGENTS) is None:
            deadline -= 1
            assert deadline, "the run of a dead process was never free"
        assert len(await place.keys()) == 1
        assert len(await schedules.list_runs()) == 1


async def test_a_process_killed_behind_the_message_does_not_make_it_two(tmp_path):
    place = Files(tmp_path)
    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON - 60))
    with racer("posted", tmp_path) as (_, out):
        assert out.readline() == "posted\n"
    async with place.open() as schedules:
        assert await place.keys() == []
        assert await run(schedules, NOON + 1) == 1
        assert len(await place.keys()) == 1
        assert len(await schedules.list_runs()) == 1
