"""The conversation can be read back: all that was said and still stands, hidden or not."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.conversations import prose, said, ticking, user
from tests.recording import checkpoint
from tests.session.session_user import tool_result, tool_use
from trimtab import Context, Session, redactor
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import SENDER_KEY, Message, Text
from trimtab.engine.window.checkpoint import MAX_REMEMBERED_REWINDS
from trimtab.errors import HistoryNotInMemory
from trimtab.stores import FileStore
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio

SMALL = {"model": "gpt-4o", "context_window": 8_000, "max_output_tokens": 500}


async def say(session: Session, numbers: range, size: int = 300) -> None:
    """Questions and answers, by number."""
    for number in numbers:
        await session.add(user(f"q{number} {prose(size)}"))
        await session.request()
        await session.add(said(f"a{number} {prose(size)}"))


def make_talk(count: int) -> list[dict[str, Any]]:
    """A list of so many messages."""
    return [
        said(f"a{n // 2} {prose(250)}") if n % 2 else user(f"q{n // 2} {prose(250)}")
        for n in range(count)
    ]


async def read(session: Session, after: str | None = None) -> list[str]:
    """The first word of each message."""
    return [each.message.text.split()[0] async for each in session.messages(after=after)]


def words(numbers: range) -> list[str]:
    return [f"{who}{number}" for number in numbers for who in "qa"]


async def test_all_of_a_long_conversation_is_there_although_memory_holds_little_of_it(store):
    session = await Session.create(store, "s", **SMALL)
    await session.sync(make_talk(1_200))
    await session.recorder.checkpoint()
    again = await Session.open(store, "s")
    assert len(again.window.entries) < 100
    for each in (session, again):
        assert await read(each) == words(range(600))
    handles = [logged.handle async for logged in again.messages()]
    assert await read(again, after=handles[1_099]) == words(range(550, 600))
    assert await read(again, after=handles[-1]) == []


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("policy", ["auto", "layered", "rolling"])
async def test_each_message_says_how_the_model_sees_it_now(policy):
    store = MemoryStore()
    session = await Session.create(store, "s", policy=policy, clock=ticking(), **SMALL)
    await say(session, range(40))
    handles = [logged.handle async for logged in session.messages()]
    await session.reveal(handles[3])
    await session.pin(handles[10])
    await say(session, range(40, 50))
    await session.undo()
    await session.rewind(await session.add(user("q49 again")))
    await say(session, range(50, 60), size=900)
    await session.erase(handles[4])
    again = await Session.open(store, "s")
    assert again.window.base.last_evicted_seq
    read_back = [logged async for logged in again.messages()]
    # A context that holds the whole log in memory knows without a search.
    whole = Context.load([event async for event in store.events("s")])
    assert read_back == list(whole.messages())
    assert len(read_back) == 118  # 60 of each, without the erased one and the undone answer
    states = {logged.state for logged in read_back}
    assert "shown" in states
    assert len(states) > 1
    for logged in read_back[::20]:
        why = await again.why(logged.handle)
        assert (logged.state, logged.reason) == (why.state, why.reason)
        assert bool(logged.reason) is (logged.state != "shown")


@pytest.mark.usefixtures("often")
async def test_what_was_undone_or_erased_is_left_out(store):
    session = await Session.create(store, "s", policy="rolling", clock=ticking(), **SMALL)
    await say(session, range(30))
    handles = [logged.handle async for logged in session.messages()]
    await session.undo()
    await session.erase([handles[0], handles[5]])
    await session.rewind(handles[49])
    await say(session, range(30, 32))
    left = [word for word in words(range(25)) if word not in ("q0", "a2")] + words(range(30, 32))
    assert await read(session) == left
    assert await read(await Session.open(store, "s")) == left
    fork = await session.fork("f")
    await say(fork, range(40, 41))
    assert await read(fork) == left + words(range(40, 41))
    assert await read(session) == left


@pytest.mark.usefixtures("often")
async def test_what_was_undone_long_ago_stays_out():
    store = MemoryStore()
    session = await Session.create(store, "s", policy="rolling", **SMALL)
    await say(session, range(2))
    handle = await session.add(user("undone"))
    await session.rewind(int(handle[1:]) - 1)
    await say(session, range(2, 30))
    for _ in range(MAX_REMEMBERED_REWINDS + 1):
        await session.rewind(session.window.seq)
    await session.recorder.checkpoint()
    again = await Session.open(store, "s")
    assert len(again.window.base.rewinds) == MAX_REMEMBERED_REWINDS
    assert await read(again) == words(range(30))


async def test_a_message_has_its_time_its_sender_and_its_text_as_it_is_stored(store):
    clock = ticking(100)
    options = {**SMALL, "redact": redactor("email"), "clock": clock}
    session = await Session.create(store, "s", **options)
    extra = {SENDER_KEY: "telegram:7"}
    text = Text(text="I am ann@example.org")
    handle = await session.add(Message(role="user", parts=(text,), extra=extra))
    (logged,) = [each async for each in session.messages()]
    assert (logged.handle, logged.sender, logged.state, logged.reason) == (
        *(handle, "telegram:7", "shown", ""),
    )
    assert "ann@example.org" not in logged.message.text
    events = {event.seq: event.at async for event in store.events("s")}
    assert logged.at == events[int(handle[1:])]


async def test_calls_and_results_are_there_and_results_that_trimtab_wrote_are_not(store):
    session = await Session.create(store, "s", model="claude-sonnet-5-5")
    await session.add(user("Read both."))
    await session.request()
    await session.add({"role": "assistant", "content": [tool_use("c1"), tool_use("c2")]})
    await session.add(tool_result("c1", "one"))
    await session.add(user("Never mind."))
    await session.request()
    roles = [logged.message.role async for logged in session.messages()]
    assert len(roles) == 4
    assert any(entry.is_repair for entry in session.window.entries.values())


async def test_what_another_process_has_added_is_there(store):
    session = await Session.create(store, "s", **SMALL)
    await say(session, range(1))
    other = await Session.open(store, "s")
    await say(session, range(1, 2))
    assert await read(other) == words(range(2))
    with pytest.raises(ValueError, match="nothing"):
        await read(other, after="nothing")


async def test_no_more_than_a_page_is_in_memory_at_a_time(tmp_path):
    store = FileStore(tmp_path)
    session = await Session.create(store, "s", **SMALL)
    await session.sync(make_talk(1_500))
    await session.recorder.checkpoint()
    await session.close()
    del session
    again = await Session.open(store, "s")
    assert len(again.window.entries) < 100
    before, most, count = count_events_in_memory(), 0, 0
    async for _ in again.messages():
        count += 1
        if count % 500 == 0:
            most = max(most, count_events_in_memory() - before)
    assert count == 1_500
    assert most < 1_200


def count_events_in_memory() -> int:
    """How many events of messages there are, also those of earlier tests."""
    gc.collect()
    return sum(isinstance(each, MessageAdded) for each in gc.get_objects())


def test_a_context_reads_its_conversation_back():
    context = Context("gpt-4o", context_window=8_000, max_output_tokens=500, policy="rolling")
    for number in range(30):
        context.add(user(f"q{number}"))
        context.request()
        context.add(said(f"a{number}"))
    everything = list(context.messages())
    assert [logged.message.text for logged in everything] == words(range(30))
    assert {logged.state for logged in everything} == {"summarised", "shown"}
    assert list(context.messages(after=everything[-3].handle)) == everything[-2:]
    context.undo()
    context.erase(everything[0].handle)
    assert [logged.message.text for logged in context.messages()] == words(range(29))[1:]
    checkpoint(context)
    with pytest.raises(HistoryNotInMemory):
        context.messages()
    assert next(context.messages(after=everything[-4].handle)).message.text == "a28"
