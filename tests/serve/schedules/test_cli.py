"""`trimtab schedule`, on files and in PostgreSQL."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from tests.serve.schedules.places import Files, at, run, schedule
from trimtab.cli.app import app

# Long ago by any clock: whatever is resumed is due later.
NOON = at("2024-11-15 12:00")
TOOL = "default/helper/telegram:123456/1234567890"


def opened(place, verb):
    async def inside():
        async with place.open() as schedules:
            return await verb(schedules)

    return asyncio.run(inside())


@pytest.fixture
def store(place):
    async def fill(schedules):
        await schedules.upsert(schedule(when="0 * * * *", now=NOON, catch_up="skip"))
        await run(schedules, NOON + 3 * 3600 + 7)
        tea = {"id": TOOL, "message": "Tea, please.", "origin": "tool"}
        await schedules.add(schedule(when="2124-11-15 13:00", now=NOON, **tea), limit=5)

    opened(place, fill)
    return str(place.root) if isinstance(place, Files) else place.conninfo


def asked(*arguments, store):
    env = {"TRIMTAB_STORE": store, "COLUMNS": "160"}
    return CliRunner().invoke(app, ["schedule", *arguments], env=env)


def lines(done):
    assert done.exit_code == 0, done.output
    return [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip("─ ")]


def told(done, status=0):
    assert done.exit_code == status, done.output
    return " ".join(done.stderr.split())


def test_all_is_listed_with_when_it_is_due_and_who_gets_it(store):
    assert lines(asked("list", store=store)) == [
        "schedule agent when next result goes to message",
        "morning helper 0 * * * * 2024-11-15 16:00 Europe/Zurich telegram:123456 What is new?",
        "1234567890 helper once 2124-11-15 13:00 Europe/Zurich telegram:123456 Tea, please.",
    ]
    found = json.loads(asked("list", "--json", store=store).stdout)
    assert [(one["name"], one["agent"], one["paused"]) for one in found] == [
        ("morning", "helper", False),
        ("1234567890", "helper", False),
    ]


def test_a_result_that_goes_nowhere_else_is_found_by_the_whole_id_of_its_session(store, place):
    tick = schedule("tick", session="default/helper/schedule:tick", now=NOON, route=None)
    opened(place, lambda schedules: schedules.upsert(tick))
    (row,) = [line for line in lines(asked("list", store=store)) if line.startswith("tick ")]
    assert " session default/helper/schedule:tick What is new?" in row


def test_the_run_log_says_what_ran_what_did_not_and_why(store):
    assert lines(asked("runs", "morning", store=store)) == [
        "schedule due outcome reason",
        "morning 2024-11-15 15:00 Europe/Zurich ran 7 s later",
        "morning 2024-11-15 13:00 Europe/Zurich skipped missed, and `catch_up` is `skip`",
    ]
    found = json.loads(asked("runs", "--json", "--limit", "1", store=store).stdout)
    assert [(one["due"], one["reason"]) for one in found] == [(NOON + 3 * 3600, "")]
    assert told(asked("runs", "1234567890", store=store)) == (
        "nothing has run yet; to see what is planned: trimtab schedule list"
    )


def test_a_schedule_is_paused_and_resumed(store):
    assert told(asked("pause", "default/helper/morning", store=store)).startswith(
        "default/helper/morning is paused; to continue: trimtab schedule resume morning"
    )
    assert " paused " in lines(asked("list", store=store))[1]
    assert told(asked("resume", "morning", store=store)).startswith(
        "default/helper/morning is resumed. It is due next 20"
    )
    assert "was not paused" in told(asked("resume", "morning", store=store))


def test_a_schedule_is_run_by_hand(store, place):
    done = asked("run-now", "morning", store=store)
    assert told(done).startswith(
        "default/helper/morning is due now, in session default/helper/telegram:123456; the server "
        "runs it. It is due next 2024-11-15 16:00"
    )

    async def look(schedules):
        return await place.keys(), (await schedules.list_runs())[0]

    keys, newest = opened(place, look)
    assert len(keys) == 2
    assert (newest.due, newest.reason) == (newest.at, "")


def test_what_an_agent_has_made_is_removed_and_what_its_file_has_is_not(store):
    assert told(asked("remove", "1234567890", store=store)) == (f"removed {TOOL}: Tea, please.")
    refused = told(asked("remove", "morning", store=store), status=2)
    assert "is in the agent's file and would come back; remove it from `schedules`" in refused
    assert "trimtab schedule pause morning" in refused
    assert len(lines(asked("list", store=store))) == 2


def test_a_name_that_nobody_has_is_answered_with_those_there_are(store):
    assert "there is no schedule 'x'; existing schedules: morning and 1234567890" in told(
        asked("pause", "x", store=store), status=2
    )


def test_a_name_that_two_have_is_asked_about(store, place):
    other = schedule(id="default/other/morning", session="default/other/x", now=NOON)
    opened(place, lambda schedules: schedules.upsert(other))
    done = asked("pause", "morning", store=store)
    assert (
        "2 schedules are called morning; use an id instead: default/helper/morning and "
        "default/other/morning"
    ) in told(done, status=2)


def test_where_there_is_nothing_it_says_how_to_begin(tmp_path):
    (tmp_path / "sessions").mkdir()
    assert "write `schedules` into agent.yaml and serve it" in told(
        asked("list", store=str(tmp_path / "sessions"))
    )
    assert "does not exist; set the folder of the sessions" in told(
        asked("list", store=str(tmp_path / "nowhere")), status=2
    )
