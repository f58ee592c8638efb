"""Schedules of one machine: what is removed leaves no byte, and what was answered is not posted."""

from dataclasses import replace

import pytest

from tests.serve.schedules.places import Files, at, run, schedule
from tests.stores.folders import holding
from trimtab.engine.log.message import make_text_message
from trimtab.errors import StoreUnavailable
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab_serve.queue.sqlite.database import SqliteDatabase
from trimtab_serve.schedules.schedule import schedule_from_json, schedule_to_json

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")


@pytest.fixture
def place(tmp_path):
    return Files(tmp_path)


async def test_a_schedule_of_a_later_release_is_refused():
    later = {**schedule_to_json(schedule(when="* * * * *", now=NOON)), "v": 2}
    with pytest.raises(ValueError, match="unknown schedule version 2; upgrade trimtab"):
        schedule_from_json(later)


async def test_a_run_that_was_answered_before_is_not_posted_again(place):
    due = schedule(when="* * * * *", now=NOON)
    async with place.open() as schedules:
        await schedules.upsert(due)
        store = FileStore(place.root, fsync=False)
        session = await Session.create(store, due.session, model="claude-sonnet-4-5")
        await session.add(
            make_text_message("user", "What is new?"), key=f"schedule/{due.id}/{int(NOON + 60)}"
        )
        await store.close()
        assert await run(schedules, NOON + 60) == 1
        assert await place.keys() == []
        assert len(await schedules.list_runs()) == 1


async def test_a_run_and_its_next_time_are_kept_together_or_not_at_all(place, monkeypatch):
    def refused(*_):
        raise StoreUnavailable("the disk is away")

    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON))
        with monkeypatch.context() as patched:
            patched.setattr("trimtab_serve.schedules.store.record_runs", refused)
            with pytest.raises(StoreUnavailable):
                await run(schedules, NOON + 60)
        assert (await place.keys(), await schedules.list_runs()) == ([], [])
        assert await run(schedules, NOON + 60) == 1
        assert len(await place.keys()) == len(await schedules.list_runs()) == 1


async def test_a_schedule_that_is_changed_while_it_is_to_run_runs_as_it_is(place):
    async with place.open() as schedules:
        was = schedule(when="* * * * *", now=NOON)
        await schedules.upsert(was)
        is_in_log, changes = place.queue.is_in_log, iter([replace(was, message="Changed.")])

        async def meanwhile(message):
            for changed in changes:
                await schedules.upsert(changed)
            return await is_in_log(message)

        place.queue.is_in_log = meanwhile
        assert await run(schedules, NOON + 60) == 1
        assert [one.message.text for one in await place.messages()] == ["Changed."]


async def test_what_is_removed_is_in_no_byte_of_any_file(place):
    async with place.open() as schedules:
        for name in ("a", "b", "c"):
            made = replace(schedule(name, now=NOON), message=f"zq-{name}", origin="tool")
            await schedules.add(replace(made, session=f"default/helper/{name}"), limit=20)
        await schedules.remove(schedule("a", now=NOON).id)
        assert holding(place.root, "zq-a") == []
        await schedules.forget_session("default/helper/b")
        assert holding(place.root, "zq-b") == []
        assert holding(place.root, "zq-c") == ["server.db"]


async def test_whoever_wants_a_schedule_gone_is_told_where_it_is_not(place, monkeypatch):
    def refused(database):
        raise StoreUnavailable("the disk is away")

    async with place.open() as schedules:
        made = replace(schedule(now=NOON), message="zq-a")
        await schedules.upsert(made)
        with monkeypatch.context() as patched:
            patched.setattr(SqliteDatabase, "_purge", refused)
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await schedules.remove(made.id)
        assert holding(place.root, "zq-a")
        assert not await schedules.remove(made.id)
        assert holding(place.root, "zq-a") == []
