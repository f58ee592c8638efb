"""Schedules on files: what a crash leaves, who may write, how long the log gets."""

import json
from dataclasses import replace

import pytest

from tests.server.schedules.places import Files, at, run, schedule
from trimtab.errors import LogDamaged, SessionLockedByOtherProcess, StoreUnavailable
from trimtab.log.message import make_text_message
from trimtab.server.schedules import files
from trimtab.server.schedules.files import read_schedule_state
from trimtab.server.schedules.single_writer_jsonl import JsonlLog
from trimtab.session import Session
from trimtab.stores.files import FileStore

pytestmark = pytest.mark.anyio
NOON = at("2026-11-15 12:00")


@pytest.fixture
def place(tmp_path):
    return Files(tmp_path)


async def test_a_torn_line_is_cut_off_and_the_rest_is_there(place):
    async with place.open() as schedules:
        await schedules.upsert(schedule(now=NOON))
    log = place.root / ".schedules/events.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"kind":"moved","id":"default/hel')
    assert len((await read_schedule_state(place.root)).find()) == 1
    async with place.open() as schedules:
        assert log.read_bytes() == whole
        await schedules.upsert(schedule("b", now=NOON))
        assert len(await schedules.find()) == 2
    assert [json.loads(line)["kind"] for line in log.read_bytes().splitlines()] == ["kept"] * 2


async def test_a_damaged_line_is_refused_by_its_number(place):
    async with place.open() as schedules:
        await schedules.upsert(schedule(now=NOON))
    log = place.root / ".schedules/events.jsonl"
    log.write_bytes(b"{nonsense}\n" + log.read_bytes())
    with pytest.raises(LogDamaged, match=r"line 1 of .*events\.jsonl cannot be read"):
        async with place.open():
            pass


async def test_one_process_runs_them_and_any_may_look(place):
    async with place.open() as schedules:
        await schedules.upsert(schedule(now=NOON))
        with pytest.raises(SessionLockedByOtherProcess, match="which holds"):
            await files.FileScheduleStore.open(
                place.root, post=place.mail.post, find_key=place.unknown
            )
        assert [one.name for one in (await read_schedule_state(place.root)).find()] == ["morning"]
    assert (await read_schedule_state(place.root / "nowhere")).find() == []


async def test_the_log_is_written_anew_before_it_gets_long(place, monkeypatch):
    monkeypatch.setattr(files, "MAX_SPARE_LOG_LINES", 20)
    async with place.open() as schedules:
        await schedules.upsert(schedule(when="* * * * *", now=NOON))
        for minute in range(1, 100):
            await run(schedules, NOON + 60 * minute)
        before = (await schedules.find(), await schedules.list_runs(limit=500))
    lines = (place.root / ".schedules/events.jsonl").read_bytes().splitlines()
    assert len(lines) <= 23
    async with place.open() as schedules:
        assert (await schedules.find(), await schedules.list_runs(limit=500)) == before
        assert len(before[1]) == 99


async def test_a_run_that_was_answered_before_the_crash_is_not_posted_again(place):
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


async def test_what_is_removed_is_in_no_byte_of_the_log(place):
    log = place.root / ".schedules/events.jsonl"
    async with place.open() as schedules:
        for name in ("a", "b", "c"):
            told = replace(schedule(name, now=NOON), message=f"zq-{name}", origin="tool")
            await schedules.add(replace(told, session=f"default/helper/{name}"), limit=20)
        await schedules.remove(schedule("a", now=NOON).id)
        assert b"zq-a" not in log.read_bytes()
        await schedules.forget_session("default/helper/b")
        assert b"zq-b" not in log.read_bytes()
    # Ended between the line that says so and the log without it.
    whole = log.read_bytes()
    with log.open("ab") as file:
        file.write(json.dumps({"kind": "removed", "ids": [schedule("c", now=NOON).id]}).encode())
        file.write(b"\n")
    assert b"zq-c" in whole
    async with place.open() as schedules:
        assert await schedules.find() == []
        assert b"zq-c" not in log.read_bytes()


async def test_whoever_wants_a_schedule_gone_is_told_where_it_is_not(place, monkeypatch):
    def refused(journal, records):
        raise StoreUnavailable("the disk is away")

    log = place.root / ".schedules/events.jsonl"
    async with place.open() as schedules:
        made = schedule(now=NOON)
        await schedules.upsert(made)
        with monkeypatch.context() as patched:
            patched.setattr(JsonlLog, "replace", refused)
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await schedules.remove(made.id)
        assert made.id.encode() in log.read_bytes()
        assert not await schedules.remove(made.id)
        assert made.id.encode() not in log.read_bytes()
