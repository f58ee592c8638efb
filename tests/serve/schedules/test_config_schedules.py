"""The schedules of `agent.yaml`: brought in, changed, taken out."""

import pytest

from tests.serve.schedules.places import AGENTS, at, run, schedule, times
from trimtab_serve.agent.config.spec import ScheduleSpec as Block
from trimtab_serve.queue.messages import ReplyRoute
from trimtab_serve.schedules.config_sync import (
    build_schedule_from_config,
    sync_schedules_from_config,
)

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")
DAILY = {"message": "What is new?", "cron": "0 8 * * *", "timezone": "Europe/Zurich"}


def blocks(**given):
    return {name: Block(**block) for name, block in given.items()}


async def test_what_the_file_has_is_added_changed_and_removed(kept):
    await sync_schedules_from_config(kept, "helper", blocks(a=DAILY, b=DAILY), now=NOON)
    await kept.add(schedule("telegram:123456/1", origin="tool", now=NOON), limit=5)
    await kept.upsert(
        schedule("x", session="default/stranger/x", id="default/stranger/x", now=NOON)
    )
    await sync_schedules_from_config(
        kept, "helper", blocks(b={**DAILY, "message": "And now?"}, c=DAILY), now=NOON + 1
    )
    found = {one.id: one for one in await kept.find()}
    assert sorted(found) == [
        "default/helper/b",
        "default/helper/c",
        "default/helper/telegram:123456/1",
        "default/stranger/x",
    ]
    assert found["default/helper/b"].message == "And now?"


async def test_what_was_missed_while_nothing_was_served_is_made_up_for(kept, place):
    await sync_schedules_from_config(kept, "helper", blocks(a=DAILY), now=NOON)
    again = at("2026-11-16 09:30")
    await sync_schedules_from_config(kept, "helper", blocks(a=DAILY), now=again)
    await run(kept, again)
    assert times(await place.keys()) == ["11-16 08:00+0100"]


async def test_a_date_that_is_over_when_it_is_first_seen_is_judged_as_missed(kept, place):
    once = {"message": "Hello.", "at": "2026-11-15 11:00", "timezone": "Europe/Zurich"}
    await sync_schedules_from_config(
        kept, "helper", blocks(a=once, b={**once, "catch_up_window": 60}), now=NOON
    )
    await run(kept, NOON)
    assert [key.split("/")[3] for key in await place.keys()] == ["a"]
    await sync_schedules_from_config(
        kept, "helper", blocks(a=once, b={**once, "catch_up_window": 60}), now=NOON + 60
    )
    assert await kept.next_due(AGENTS) is None


@pytest.mark.parametrize(
    ("given", "session", "route"),
    [
        ({}, "schedule:a", None),
        ({"session": "diary"}, "diary", None),
        (
            {"to": "telegram:123456"},
            "telegram:123456",
            ReplyRoute(channel="telegram", address={"chat": 123456}),
        ),
        (
            {"to": "telegram:-1001234:7"},
            "telegram:-1001234:7",
            ReplyRoute(channel="telegram", address={"chat": -1001234, "topic": 7}),
        ),
        (
            {"to": "telegram:5", "session": "diary"},
            "diary",
            ReplyRoute(channel="telegram", address={"chat": 5}),
        ),
        (
            {"to": "discord:987654"},
            "discord:987654",
            ReplyRoute(channel="discord", address={"channel": 987654}),
        ),
    ],
)
async def test_a_result_belongs_into_the_session_of_the_chat_that_gets_it(given, session, route):
    made = build_schedule_from_config("helper", "a", Block(**DAILY, **given), now=NOON)
    assert (made.session, made.route) == (f"default/helper/{session}", route)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"session": "a/b"}, "invalid session name"),
        ({"cron": None, "at": "9999-12-31 23:59"}, "invalid date and time"),
    ],
)
async def test_what_cannot_be_read_changes_nothing_and_is_named(kept, given, why):
    await sync_schedules_from_config(kept, "helper", blocks(a=DAILY), now=NOON)
    with pytest.raises(ValueError, match=r"schedules\.b: ") as refused:
        await sync_schedules_from_config(kept, "helper", blocks(b={**DAILY, **given}), now=NOON)
    assert why in str(refused.value)
    assert [one.name for one in await kept.find()] == ["a"]
