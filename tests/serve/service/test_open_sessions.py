"""Sessions that stay open: one object each, whoever uses it, and no more than may."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.pictures import png, text
from trimtab.engine.log.message import Media, Message, ToolCall, ToolResult
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore
from trimtab_serve.service.session_cache import SessionCache

pytestmark = pytest.mark.anyio


class Opening:
    """Opens sessions, and counts."""

    def __init__(self, store=None) -> None:
        self.store = store or MemoryStore()
        self.count = 0
        self.fails = 0

    async def __call__(self, name: str) -> Session:
        self.count += 1
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("not now")
        if await self.store.position(name):
            return await Session.open(self.store, name)
        return await Session.create(self.store, name, model="gpt-4o")


async def test_two_who_open_at_once_share_one_object():
    opening = Opening()
    sessions = SessionCache(opening)

    async def use() -> Session:
        async with sessions.open_session("s") as session:
            await asyncio.sleep(0.001)
            return session

    one, other = await asyncio.gather(use(), use())
    assert one is other
    assert opening.count == 1


async def test_the_ones_used_last_stay_open():
    opening = Opening()
    sessions = SessionCache(opening, max_sessions=2)
    for name in ("a", "b", "a", "c", "a"):
        async with sessions.open_session(name):
            pass
    assert (opening.count, len(sessions)) == (3, 2)
    async with sessions.open_session("b"):
        assert opening.count == 4


async def test_long_ones_are_closed_before_they_are_too_many():
    opening = Opening()
    sessions = SessionCache(opening, max_sessions=9, max_bytes=3_500)
    for name in "abcde":
        async with sessions.open_session(name) as session:
            await session.add({"role": "user", "content": "x" * 1_000})
    assert (opening.count, len(sessions)) == (5, 3)
    async with sessions.open_session("e"):
        assert opening.count == 5
    async with sessions.open_session("b"):
        assert opening.count == 6


@pytest.mark.parametrize("in_result", [True, False])
async def test_a_picture_counts_by_what_it_takes_in_memory(in_result):
    opening = Opening()
    sessions = SessionCache(opening, max_sessions=9, max_bytes=150_000)
    picture = Media(kind="image", mime="image/png", data=text(png(weight=75_000)))
    for name in "abc":
        async with sessions.open_session(name) as session:
            if in_result:
                call = ToolCall(id="c", name="look", arguments="{}")
                await session.add(Message(role="assistant", parts=(call,)))
                result = ToolResult(call_id="c", content=(picture,))
                await session.add(Message(role="tool", parts=(result,)))
            else:
                await session.add(Message(role="user", parts=(picture,)))
    assert len(sessions) == 1


async def test_what_is_in_use_stays_open_however_many_there_are():
    opening = Opening()
    sessions = SessionCache(opening, max_sessions=1)
    async with sessions.open_session("a") as held:
        for name in ("b", "c", "d"):
            async with sessions.open_session(name):
                pass
        async with sessions.open_session("a") as again:
            assert again is held
    await sessions.close()
    assert len(sessions) == 0


async def test_a_session_that_could_not_be_opened_is_opened_by_the_next():
    opening = Opening()
    opening.fails = 1
    sessions = SessionCache(opening)

    async def use() -> str:
        async with sessions.open_session("s") as session:
            return session.id

    one, other = await asyncio.gather(use(), use(), return_exceptions=True)
    assert isinstance(one, ConnectionError)
    assert other == "s"


async def test_what_others_have_written_is_there():
    opening = Opening()
    sessions = SessionCache(opening)
    async with sessions.open_session("s"):
        pass
    other = await Session.open(opening.store, "s")
    await other.add({"role": "user", "content": "Hello."})
    async with sessions.open_session("s") as session:
        assert session.window.visible_messages == 1


async def test_a_session_that_was_deleted_and_begun_anew_is_opened_anew():
    opening = Opening()
    sessions = SessionCache(opening)
    async with sessions.open_session("s") as session:
        await session.add({"role": "user", "content": "Hello."})
    await opening.store.delete("s")
    async with sessions.open_session("s") as session:
        assert session.window.visible_messages == 0
        await session.add({"role": "user", "content": "Again."})


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_nothing_of_a_deleted_log_is_seen_in_one_as_long_or_longer(more):
    opening = Opening()
    sessions = SessionCache(opening)
    async with sessions.open_session("s") as session:
        await session.add({"role": "user", "content": "My PIN is 1234."})
    await opening.store.delete("s")
    another = await Session.create(opening.store, "s", model="gpt-4o")
    for number in range(1 + more):
        await another.add({"role": "user", "content": f"New {number}."})
    async with sessions.open_session("s") as session:
        assert session.window.visible_messages == 1 + more
        assert "1234" not in json.dumps(await session.request())


async def test_a_session_that_nobody_uses_is_left_to_other_processes(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    sessions = SessionCache(Opening(store), max_sessions=1)
    for name in ("a", "b"):
        async with sessions.open_session(name):
            pass
    await sessions.close()
    other = FileStore(tmp_path, fsync=False)
    for name in ("a", "b"):
        assert await other.held_by(name) is None


async def test_closing_waits_for_what_is_being_closed_but_a_user_does_not():
    sessions = SessionCache(Opening(), max_sessions=1)
    summary = asyncio.Event()

    async def summarise() -> None:
        await summary.wait()

    async with sessions.open_session("a") as session:
        session.recorder.run_in_background(summarise())
    async with asyncio.timeout(5):
        async with sessions.open_session("b"):
            pass
    closing = asyncio.create_task(sessions.close())
    await asyncio.sleep(0)
    assert not closing.done()
    summary.set()
    async with asyncio.timeout(5):
        await closing
