"""What schedules promise, on files and in PostgreSQL: each run happens as its policy says, once."""

import asyncio
from dataclasses import replace

import pytest

from tests.serve.schedules.places import AGENTS, CHAT, ZURICH, at, run, schedule, times
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.schedules.schedule import ScheduleRunLogEntry
from trimtab_serve.schedules.store import (
    FINISHED_RETENTION_S,
    MAX_RUN_LOG_ENTRIES,
    ScheduleNotPosted,
    TooManySchedules,
)
from trimtab_serve.schedules.triggers import parse_cron_trigger

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")


async def test_a_run_that_is_due_becomes_one_message_and_the_next_time_is_set(kept, place):
    await kept.upsert(schedule(when="*/10 * * * *", now=NOON))
    assert await kept.next_due(AGENTS) == NOON + 600
    assert await run(kept, NOON + 599) == 0
    assert await run(kept, NOON + 600.5) == 1
    assert await run(kept, NOON + 601) == 0
    assert await place.keys() == [f"schedule/default/helper/morning/{int(NOON + 600)}"]
    assert await kept.next_due(AGENTS) == NOON + 1200
    assert await kept.list_runs() == [
        ScheduleRunLogEntry(schedule="default/helper/morning", due=NOON + 600, at=NOON + 600.5)
    ]


async def test_what_is_due_once_runs_once_and_is_done(kept, place):
    await kept.upsert(schedule(when="2026-11-15 12:30", now=NOON))
    assert await run(kept, NOON + 1800) == 1
    assert await run(kept, NOON + 9e6) == 0
    assert times(await place.keys()) == ["11-15 12:30+0100"]
    assert await kept.next_due(AGENTS) is None
    # The file still has it when the agent is started again.
    await kept.upsert(schedule(when="2026-11-15 12:30", now=NOON + 9e6))
    assert await run(kept, NOON + 9e6) == 0


@pytest.mark.parametrize(
    ("catch_up", "catch_up_window", "ran"),
    [
        ("skip", 86_400, []),
        ("once", 86_400, ["14:00"]),
        ("all", 86_400, ["12:30", "13:00", "13:30", "14:00"]),
        ("all", 3600, ["13:30", "14:00"]),
        ("once", 3600, ["14:00"]),
        ("once", 60, []),
        ("all", 0, []),
    ],
)
async def test_an_outage_is_made_up_for_as_the_policy_says(
    kept, place, catch_up, catch_up_window, ran
):
    await kept.upsert(
        schedule(when="*/30 * * * *", now=NOON, catch_up=catch_up, catch_up_window=catch_up_window)
    )
    back = NOON + 2.25 * 3600
    await run(kept, back)
    assert [one[6:11] for one in times(await place.keys())] == ran
    # And goes on as if nothing had been.
    assert await kept.next_due(AGENTS) == at("2026-11-15 14:30")
    await run(kept, back + 900)
    assert [one[6:11] for one in times(await place.keys())] == [*ran, "14:30"]


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
async def test_a_run_within_a_minute_is_on_time_whatever_the_policy(kept, place, catch_up):
    await kept.upsert(schedule(now=NOON, catch_up=catch_up, catch_up_window=0))
    await run(kept, at("2026-11-16 08:00:59"))
    assert times(await place.keys()) == ["11-16 08:00+0100"]


async def test_the_run_log_says_what_was_skipped_and_why(kept):
    await kept.upsert(schedule(when="0 * * * *", now=NOON, catch_up="skip"))
    await run(kept, NOON + 3 * 3600 + 30)
    assert [(one.due, one.until, one.reason) for one in await kept.list_runs()] == [
        (NOON + 3 * 3600, None, ""),
        (NOON + 3600, NOON + 3 * 3600, "missed, and `catch_up` is `skip`"),
    ]
    await kept.upsert(schedule(when="0 * * * *", now=NOON, catch_up="once", catch_up_window=600))
    await run(kept, NOON + 5 * 3600 + 1200)
    assert (await kept.list_runs(limit=1))[0].reason == "missed more than 600 seconds ago"


async def test_a_clock_that_is_set_back_runs_nothing_twice(kept, place):
    await kept.upsert(schedule(when="*/30 * * * *", now=NOON))
    await run(kept, NOON + 3601)
    for minute in range(-60, 31):
        await run(kept, NOON + 3600 + minute * 60)
    assert [one[6:11] for one in times(await place.keys())] == ["13:00", "13:30"]


async def test_a_clock_that_is_set_forward_is_an_outage_and_back_again_no_second_one(kept, place):
    await kept.upsert(schedule(when="*/30 * * * *", now=NOON, catch_up="all"))
    await run(kept, NOON + 2 * 3600)
    await run(kept, NOON + 60)
    await run(kept, NOON + 2 * 3600 + 60)
    assert [one[6:11] for one in times(await place.keys())] == ["12:30", "13:00", "13:30", "14:00"]


@pytest.mark.parametrize(
    ("cron", "day", "ran"),
    [
        ("30 2 * * *", "2026-03-29", ["03:00+0200"]),
        ("30 2 * * *", "2026-10-25", ["02:30+0200"]),
        (
            "30 1-3 * * *",
            "2026-03-29",
            ["01:30+0100", "03:00+0200", "03:30+0200"],
        ),
        ("0 * * * *", "2026-03-29", ["01:00+0100", "03:00+0200", "04:00+0200"]),
        (
            "0 * * * *",
            "2026-10-25",
            ["01:00+0200", "02:00+0200", "02:00+0100", "03:00+0100", "04:00+0100"],
        ),
    ],
)
async def test_clocks_that_change_at_night_are_met(kept, place, cron, day, ran):
    start, end = at(f"{day} 00:30"), at(f"{day} 04:30")
    await kept.upsert(schedule(when=cron, now=start))
    for second in range(int(start), int(end), 300):
        await run(kept, second + 1.0)
    assert [one[6:] for one in times(await place.keys())] == ran


async def test_a_schedule_that_stays_due_at_the_same_times_keeps_its_place(kept, place):
    await kept.upsert(schedule(now=NOON))
    later = at("2026-11-16 09:30")
    await kept.upsert(schedule(now=later, message="And now?"))
    found = await kept.get("default/helper/morning")
    assert (found.message, found.next_run_at) == ("And now?", at("2026-11-16 08:00"))
    assert found.created_at == NOON
    await kept.upsert(schedule(when="0 10 * * *", now=later))
    assert await run(kept, later) == 0
    assert await kept.next_due(AGENTS) == at("2026-11-16 10:00")


async def test_a_tool_adds_once_and_no_more_than_allowed(kept):
    made = [
        schedule(f"telegram:123456/{n}", "2026-11-15 13:00", origin="tool", now=NOON)
        for n in range(3)
    ]
    assert await kept.add(made[0], limit=2) == made[0]
    changed = replace(made[0], message="Otherwise.")
    assert await kept.add(changed, limit=2) == made[0]
    await kept.add(made[1], limit=2)
    with pytest.raises(TooManySchedules, match="has 2 schedules, which is the limit"):
        await kept.add(made[2], limit=2)
    # Those that are done do not count, and are known for a while.
    await run(kept, NOON + 3600)
    await kept.add(made[2], limit=2)
    assert (await kept.add(changed, limit=2)).next_run_at is None
    later = schedule(
        "telegram:123456/9", "2027-01-15 13:00", origin="tool", now=NOON + 2 * FINISHED_RETENTION_S
    )
    await kept.add(later, limit=2)
    assert await kept.get(made[0].id) is None


async def test_many_who_add_at_once_stay_within_the_limit(kept):
    made = [schedule(f"telegram:123456/{n}", origin="tool", now=NOON) for n in range(6)]
    done = await asyncio.gather(*(kept.add(one, limit=3) for one in made), return_exceptions=True)
    assert sum(isinstance(one, TooManySchedules) for one in done) == 3
    assert len(await kept.find(session=made[0].session)) == 3


async def test_what_is_removed_does_not_run_and_leaves_no_log(kept, place):
    await kept.upsert(schedule(when="* * * * *", now=NOON))
    await run(kept, NOON + 60)
    assert await kept.remove("default/helper/morning")
    assert not await kept.remove("default/helper/morning")
    assert await run(kept, NOON + 120) == 0
    assert await kept.list_runs() == []


async def test_with_a_session_go_the_schedules_that_were_made_in_it(kept):
    mine, other = "default/helper/telegram:123456", "default/helper/other"
    await kept.upsert(schedule(now=NOON))
    await kept.add(schedule("telegram:123456/1", origin="tool", now=NOON), limit=5)
    await kept.add(schedule("other/1", origin="tool", session=other, now=NOON), limit=5)
    await kept.forget_session(mine)
    assert [one.id for one in await kept.find()] == [
        "default/helper/morning",
        "default/helper/other/1",
    ]


async def test_agents_that_are_not_served_here_are_left_alone(kept):
    foreign = schedule("x", when="* * * * *", session="default/stranger/x", now=NOON)
    await kept.upsert(foreign)
    assert await kept.next_due(AGENTS) is None
    assert await run(kept, NOON + 60) == 0
    assert await kept.next_due(["stranger"]) == NOON + 60


async def test_what_cannot_be_posted_stays_due_and_holds_up_nobody(kept, place):
    await kept.upsert(schedule("a", when="* * * * *", session="default/helper/full", now=NOON))
    await kept.upsert(schedule("b", when="* * * * *", now=NOON))
    place.refused.add("default/helper/full")
    with pytest.raises(ScheduleNotPosted, match="default/helper/a is due but cannot run"):
        await kept.run_next_due(NOON + 60, AGENTS)
    runner = ScheduleRunner(kept, AGENTS, clock=lambda: NOON + 60)
    await runner.run_due()
    assert [key.split("/")[3] for key in await place.keys()] == ["b"]
    place.refused.clear()
    await runner.run_due()
    assert [key.split("/")[3] for key in await place.keys()] == ["b", "a"]


async def test_the_run_log_is_bounded(kept, place):
    await kept.upsert(schedule(when="* * * * *", now=NOON, catch_up="all"))
    await run(kept, NOON + (2 * MAX_RUN_LOG_ENTRIES + 50) * 60)
    assert len(set(await place.keys())) == 2 * MAX_RUN_LOG_ENTRIES + 50
    runs = await kept.list_runs(schedule_id="default/helper/morning", limit=9999)
    assert len(runs) == MAX_RUN_LOG_ENTRIES
    assert runs[0].due == NOON + (2 * MAX_RUN_LOG_ENTRIES + 50) * 60


async def test_all_of_it_is_there_when_it_is_opened_again(place):
    strange = schedule(now=NOON, message="a\u0000b\ud800\nc", catch_up="all", catch_up_window=7)
    async with place.open() as first:
        await first.upsert(strange)
        await first.upsert(schedule("b", when="* * * * *", now=NOON))
        await run(first, NOON + 60)
        before = (await first.find(), await first.list_runs())
    async with place.open() as second:
        assert (await second.find(), await second.list_runs()) == before
        found = await second.get(strange.id)
        assert found == strange
        assert (found.route, found.trigger) == (CHAT, parse_cron_trigger("0 8 * * *", ZURICH))


async def test_what_is_paused_neither_runs_nor_misses_anything(kept, place):
    await kept.upsert(schedule(when="*/30 * * * *", now=NOON, catch_up="all"))
    assert await kept.pause("default/helper/morning")
    assert await kept.next_due(AGENTS) is None
    assert await run(kept, NOON + 2 * 3600) == 0
    # The file says nothing of it, and may even have changed.
    await kept.upsert(schedule(when="*/20 * * * *", now=NOON, catch_up="all"))
    assert await run(kept, NOON + 2 * 3600) == 0
    assert await kept.resume("default/helper/morning", NOON + 2 * 3600 + 1)
    assert await run(kept, NOON + 2 * 3600 + 1200) == 1
    assert [one[6:11] for one in times(await place.keys())] == ["14:20"]
    assert not await kept.pause("default/helper/other")
    assert not await kept.resume("default/helper/other", NOON)


async def test_what_is_due_once_and_was_paused_is_still_due(kept, place):
    await kept.upsert(schedule(when="2026-11-15 12:30", now=NOON))
    await kept.pause("default/helper/morning")
    assert await run(kept, NOON + 3600) == 0
    await kept.resume("default/helper/morning", NOON + 3600)
    assert await run(kept, NOON + 3600) == 1
    assert times(await place.keys()) == ["11-15 12:30+0100"]


async def test_what_is_run_by_hand_runs_besides(kept, place):
    await kept.upsert(schedule(now=NOON))
    await kept.pause("default/helper/morning")
    assert await kept.run_now("default/helper/morning", NOON + 60.5)
    assert not await kept.run_now("default/helper/other", NOON + 60.5)
    (inbound,) = await place.messages()
    assert (inbound.message.text, inbound.route) == ("What is new?", CHAT)
    (line,) = await kept.list_runs()
    assert (line.due, line.at, line.reason) == (NOON + 60.5, NOON + 60.5, "")
    found = await kept.get("default/helper/morning")
    assert (found.paused, found.next_run_at) == (True, at("2026-11-16 08:00"))
