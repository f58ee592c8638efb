"""What an operator makes a folder forget, whether a process serves from it or not."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from tests.serve.forgetting.erasure_crash import furnish
from tests.serve.service.served_agents import SESSION, Gated, inbound, served, until
from tests.stores.folders import holding
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import make_text_message
from trimtab.errors import SessionNotFound, StoreUnavailable
from trimtab.stores.files import FileStore
from trimtab_serve.forgetting import control_files, erasure, stored_sessions
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.service.erasure_records import FileErasureRecords
from trimtab_serve.service.sender import with_sender

pytestmark = pytest.mark.anyio

WORD = "zq4711"


@asynccontextmanager
async def house(root, *script, provider=None):
    """A process that serves from the folder, as far as others can tell."""
    store = FileStore(root)
    queue = await SqliteMessageQueue.open(store)
    made = served(*script, store=store, queue=queue, provider=provider)
    obeying = asyncio.create_task(control_files.serve_control_requests(root, made.service))
    try:
        yield made
    finally:
        obeying.cancel()
        with suppress(asyncio.CancelledError):
            await obeying
        await made.turns.drain(1)
        await made.service.close()
        await store.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(control_files, "CONTROL_POLL_S", 0.01)


@pytest.fixture
async def mine(tmp_path):
    """The operator's own store: another process's, as far as locks go."""
    store = FileStore(tmp_path)
    yield store
    await store.close()


async def erase(store, handle, **own):
    return await stored_sessions.erase_stored_message(
        str(store.root), store, SESSION, handle, **own
    )


async def test_the_process_that_serves_erases_what_it_is_asked_to(tmp_path, mine):
    async with house(tmp_path, f"You are {WORD}.") as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await serving.turns.wait_until_idle()
        last = await serving.service.store.position(SESSION)
        gone, forks = await erase(mine, f"m2-m{last}", why="asked for")
        assert (len(gone), forks) == (2, [])
        assert holding(tmp_path, WORD) == []
        assert [*(tmp_path / ".server" / "asked").iterdir()] == []
        assert (await erase(mine, f"m2-m{last}"))[0] == gone


async def test_a_turn_that_runs_there_is_begun_again(tmp_path, mine):
    gated = Gated("Hello.", "Hello.")
    async with house(tmp_path, provider=gated) as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await until(lambda: gated.waiting)
        await erase(mine, "m2")
        gated.open.set()
        await serving.turns.wait_until_idle()
        assert WORD not in str(gated.begun[1:])
        assert await serving.texts() == [("user", "[erased]"), ("assistant", "Hello.")]
        assert holding(tmp_path, WORD) == []


async def test_the_process_that_serves_deletes_what_it_is_asked_to(tmp_path, mine):
    async with house(tmp_path, f"You are {WORD}.") as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await serving.turns.wait_until_idle()
        await stored_sessions.delete_stored_session(str(tmp_path), mine, SESSION)
        assert holding(tmp_path, WORD) == []
        assert await serving.service.store.position(SESSION) == 0


async def test_the_process_that_serves_forgets_users_and_tenants(tmp_path, mine):
    async with house(tmp_path, *[f"You are {WORD}."] * 3) as serving:
        records = serving.service.erasure_records = FileErasureRecords(tmp_path)
        for session in (SESSION, "acme/helper/one", "acme/helper/two"):
            said = with_sender(make_text_message("user", f"I am {WORD}."), "anna")
            await serving.service.post(replace(inbound("", key="a", session=session), message=said))
        await serving.turns.wait_until_idle()
        running = asyncio.create_task(erasure.run_erasures(serving.service, poll_s=0.01))
        where, seen = (str(tmp_path), mine), list[str]()
        show = lambda job: seen.append(job.state)  # noqa: E731 - a line of progress
        done = await stored_sessions.erase_stored_data(*where, "default", "anna", show)
        assert (done.sessions, done.messages) == (1, 0)
        done = await stored_sessions.erase_stored_data(*where, "acme", "", show)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert done.sessions == 2
        assert {"running", "done"} == {*seen}
        assert holding(tmp_path, WORD) == []
        assert holding(tmp_path, "anna") == []
        assert {one.by for one in await records.newest(None)} == {"command line"}


async def test_what_it_cannot_do_is_told_in_its_words(tmp_path, mine):
    async with house(tmp_path, "Hello.") as serving:
        await serving.say("I am here.", key="a")
        await serving.turns.wait_until_idle()
        with pytest.raises(ValueError, match="nothing was erased: there is no m99"):
            await erase(mine, "m99")
        with pytest.raises(ValueError, match="there is no session 'default/helper/none'"):
            await stored_sessions.delete_stored_session(str(tmp_path), mine, "default/helper/none")


async def test_a_session_of_an_agent_that_is_not_served_is_erased_as_well(tmp_path, mine):
    async with house(tmp_path, "Hello.") as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await serving.turns.wait_until_idle()
        async with serving.service.open_session(SESSION) as opened:
            await (await opened.fork("default/another/one")).close()
        gone, _ = await stored_sessions.erase_stored_message(
            str(tmp_path), mine, "default/another/one", "m2"
        )
        assert gone == ["m2"]
        assert "events.jsonl" not in holding(tmp_path / "default%2Fanother%2Fone", WORD)


async def test_a_session_that_is_not_served_is_erased_here_beside_a_process_that_serves(
    tmp_path, mine
):
    async with house(tmp_path, "Hello.") as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await serving.turns.wait_until_idle()
        async with serving.service.open_session(SESSION) as opened:
            await (await opened.fork("chat-1")).close()
        assert await stored_sessions.erase_stored_message(str(tmp_path), mine, "chat-1", "m2") == (
            ("m2",),
            (),
        )
        assert not (tmp_path / ".server" / "asked").exists()


async def test_where_nobody_serves_it_is_done_here(tmp_path, mine):
    async with house(tmp_path, "Hello.", "Hello.") as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await serving.say(f"I am {WORD}.", key="a", session="default/helper/two")
        await serving.turns.wait_until_idle()
    await erase(mine, "m2")
    await stored_sessions.delete_stored_session(str(tmp_path), mine, "default/helper/two")
    assert holding(tmp_path, WORD) == []
    with pytest.raises(SessionNotFound):
        await stored_sessions.delete_stored_session(str(tmp_path), mine, "default/helper/two")


async def test_a_process_that_does_not_answer_is_asked_no_more(tmp_path, mine, monkeypatch):
    monkeypatch.setattr(control_files, "CONTROL_TIMEOUT_S", 0.1)
    queue = await SqliteMessageQueue.open(FileStore(tmp_path))
    with pytest.raises(StoreUnavailable, match=r"did not handle it in 0\.1 s"):
        await erase(mine, "m2")
    assert [*(tmp_path / ".server" / "asked").iterdir()] == []
    await queue.close()


async def test_a_process_that_ends_meanwhile_is_waited_for_no_longer(tmp_path, mine):
    queue = await SqliteMessageQueue.open(FileStore(tmp_path))
    asking = asyncio.create_task(erase(mine, "m2"))
    await until(lambda: [*tmp_path.glob(".server/asked/*.json")])
    await queue.close()
    with pytest.raises(StoreUnavailable, match="has ended, so the request was withdrawn"):
        await asking


async def test_what_nobody_has_read_or_can_read_is_put_away(tmp_path):
    folder = tmp_path / ".server" / "asked"
    async with house(tmp_path, "Hello."):
        pass
    folder.mkdir()
    (folder / "1-1.answer").write_text("{}")
    (folder / "2-2.json").write_text("nonsense")
    async with house(tmp_path, "Hello."):
        await until((folder / "2-2.answer").exists)
        assert not (folder / "1-1.answer").exists()
        assert "error" in json.loads((folder / "2-2.answer").read_text())
        assert not (folder / "2-2.json").exists()


async def test_a_schedule_goes_with_the_call_that_made_it(tmp_path):
    root = tmp_path / "furnished"
    await furnish(root)
    store = FileStore(root)
    (handle,) = [
        f"m{event.seq}"
        async for event in store.events(SESSION)
        if isinstance(event.body, MessageAdded) and event.body.message.calls
    ]
    await stored_sessions.erase_stored_message(str(root), store, SESSION, handle)
    queue = await SqliteMessageQueue.open(store)
    assert await ScheduleStore(queue.transactions).find() == []
    await queue.close()
    assert "Ask zq4711needle again." not in str((root / ".server/server.db").read_bytes())
    await store.close()


async def test_a_disk_that_refuses_an_answer_does_not_end_the_process_that_serves(
    tmp_path, mine, monkeypatch
):
    def refused(path, answer):
        raise OSError("no space is left")

    monkeypatch.setattr(control_files, "CONTROL_TIMEOUT_S", 0.2)
    async with house(tmp_path, "Hello.") as serving:
        await serving.say(f"I am {WORD}.", key="a")
        await serving.turns.wait_until_idle()
        with monkeypatch.context() as patched:
            patched.setattr(control_files, "_write_answer", refused)
            with pytest.raises(StoreUnavailable, match="did not handle it"):
                await erase(mine, "m2")
        assert (await erase(mine, "m2"))[0] == ["m2"]
