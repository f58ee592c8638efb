"""A caller's own list and a session agree, whatever happened to the process in between.

A plain `Context`, which never forgets anything, is what each session is compared with.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest

from tests.agents import Clock
from tests.conversations import prose
from tests.session.failing_stores import Wrapped
from tests.session.session_user import bodies
from trimtab import Context, EditNotice
from trimtab.engine.log.event import Event, MessageAdded, Rewind, dump_canonical_json
from trimtab.errors import StoreUnavailable
from trimtab.session import Session
from trimtab.stores import open_store
from trimtab.stores.base import Store
from trimtab.testing import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("often")]

OPTIONS: dict[str, Any] = {
    "model": "gpt-4o",
    "system": "You are careful.",
    "context_window": 4_000,
    "max_output_tokens": 500,
    "recall": True,
}


class Framework:
    """Keeps the whole history, and passes a copy of it before each call."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.turns = 0

    def ask(self) -> None:
        self.messages.append({"role": "user", "content": prose(150, f"question {self.turns}")})

    def call_tools(self) -> None:
        ids = [f"c{self.turns}a", f"c{self.turns}b"]
        calls = [
            {"id": i, "type": "function", "function": {"name": "read", "arguments": "{}"}}
            for i in ids
        ]
        self.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        for i in ids:
            said = prose(900, f"value_{i} = {self.turns}")
            self.messages.append({"role": "tool", "tool_call_id": i, "content": said})

    def reply(self) -> None:
        self.messages.append({"role": "assistant", "content": prose(600, f"answer {self.turns}")})
        self.turns += 1

    @property
    def passed(self) -> list[dict[str, Any]]:
        return deepcopy(self.messages)


class Life:
    """The same calls for a context in memory and for a session."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self.framework, self.session, self.clock = Framework(), session, clock
        self.context = Context(**OPTIONS, clock=clock)

    async def fit(self) -> str:
        """Both send the same for the list; return it."""
        self.clock.now += 1
        messages = self.framework.passed
        self.context.sync(messages)
        expected = dump_canonical_json(self.context.request())
        await self.session.sync(messages)
        assert dump_canonical_json(await self.session.request()) == expected
        shown = [(one.message, one.positions, one.is_edited) for one in self.context.view()]
        assert [(one.message, one.positions, one.is_edited) for one in self.session.view()] == shown
        return expected

    async def turn(self) -> None:
        self.framework.ask()
        await self.fit()
        self.framework.call_tools()
        await self.fit()
        self.framework.reply()


async def created(store: Store, clock: Clock) -> Session:
    return await Session.create(store, "s", **OPTIONS, clock=clock)


async def rewinds(store: Store) -> list[Rewind]:
    return [body for body in await bodies(store, "s") if isinstance(body, Rewind)]


async def test_a_list_is_known_again_after_each_restart(place):
    clock = Clock()
    life = Life(await created(await place.open(), clock), clock)
    for number in range(10):
        await life.turn()
        if number % 3 == 2:
            await life.session.close()
            await life.session.store.close()
            life.session = await Session.open(await place.open(), "s", clock=clock)
    assert life.session.window.base.last_evicted_seq > 0  # messages have left the memory
    last = await life.fit()
    assert await life.fit() == last
    assert await rewinds(life.session.store) == []
    await life.session.store.close()


async def test_processes_that_take_turns_go_on_where_the_other_ended(place):
    clock = Clock()
    first = await place.open()
    second = first if place.name == "files" else await place.open()  # files have one writer
    life = Life(await created(first, clock), clock)
    sessions = [life.session, await Session.open(second, "s", clock=clock)]
    for number in range(12):
        life.session = sessions[number % 2]
        await life.turn()
    assert sessions[0].window.base.last_evicted_seq > 0
    assert await rewinds(first) == []
    await first.close()
    await second.close()


@pytest.mark.parametrize(("kept", "is_reopened"), [(3, False), (12, True), (30, True), (42, False)])
async def test_a_shorter_list_takes_back_what_is_missing(kept, is_reopened):
    store, clock = MemoryStore(), Clock()
    life = Life(await created(store, clock), clock)
    for _ in range(10):
        await life.turn()
    assert life.session.window.base.last_evicted_seq > 0
    if is_reopened:
        life.session = await Session.open(store, "s", clock=clock)
    framework = life.framework
    framework.messages = framework.messages[:kept]
    framework.ask()
    await life.fit()
    assert len(await rewinds(store)) == 1
    await life.turn()  # and it goes on
    assert len(await rewinds(store)) == 1


@pytest.mark.parametrize(
    ("changed", "is_reopened"), [(0, True), (10, False), (25, True), (45, False)]
)
async def test_a_changed_message_leaves_the_others_hidden(changed, is_reopened):
    store, clock = MemoryStore(), Clock()
    life = Life(await created(store, clock), clock)
    for _ in range(10):
        await life.turn()
    assert life.session.window.base.last_evicted_seq > 0
    if is_reopened:
        life.session = await Session.open(store, "s", clock=clock)
    life.framework.messages[changed] = {"role": "user", "content": "Something else."}
    life.framework.ask()
    await life.fit()
    assert len(await rewinds(store)) == 1
    await life.turn()  # and it goes on
    assert len(await rewinds(store)) == 1


async def test_nothing_is_lost_or_doubled_by_appends_that_fail(place):
    clock = Clock()
    inner = await place.open()
    store = Unreliable(inner)
    life = Life(await created(store, clock), clock)
    for number in range(6):
        life.framework.ask()
        for lands in (False, True):
            store.lands, store.fails = lands, True
            with pytest.raises(StoreUnavailable):
                await life.session.sync(life.framework.passed)
            store.fails = False
            if number % 2:
                await life.session.refresh()
        await life.fit()
        life.framework.call_tools()
        await life.fit()
        life.framework.reply()
    said = [body for body in await bodies(inner, "s") if isinstance(body, MessageAdded)]
    assert len(said) == len(life.framework.messages) - 1  # the last reply is not passed yet
    await inner.close()


class Unreliable(Wrapped):
    """A store that fails before or after it has stored."""

    fails = lands = False

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        if not self.fails or self.lands:
            await super().append(session, events, epoch=epoch)
        if self.fails:
            raise StoreUnavailable("the server is gone")


async def test_two_lists_at_the_same_time_are_both_stored_whole(place):
    clock = Clock()
    store = await place.open()
    await created(store, clock)
    other = store if place.name == "files" else await place.open()
    sessions = [await Session.open(each, "s", clock=clock) for each in (store, other)]
    framework = Framework()
    for _ in range(3):
        framework.ask()
        framework.call_tools()
        framework.reply()
    await asyncio.gather(*(session.sync(framework.passed) for session in sessions))
    said = [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    assert len(said) == len(framework.messages)
    assert await rewinds(store) == []
    await store.close()
    await other.close()


async def test_a_refused_list_changes_nothing():
    store, clock = MemoryStore(), Clock()
    life = Life(await created(store, clock), clock)
    await life.turn()
    await life.fit()
    before = await store.position("s")
    system = {"role": "system", "content": "Another system prompt."}
    broken = [system, *life.framework.passed, {"role": "nobody"}]
    with pytest.raises(ValueError, match="nobody"):
        await life.session.sync(broken)
    assert await store.position("s") == before
    await life.turn()


async def test_erased_words_stay_erased_although_the_list_has_them():
    store, clock = MemoryStore(), Clock()
    life = Life(await created(store, clock), clock)
    for _ in range(8):
        await life.turn()
    handle = next(one.handle for one in life.session.view() if "question 7" in one.message.text)
    life.context.erase(handle)
    await life.session.erase(handle)
    assert "question 7" not in await life.fit()
    life.session = await Session.open(store, "s", clock=clock)
    assert "question 7" not in await life.fit()
    assert await rewinds(store) == []


async def test_edits_are_told_once_and_when_they_are_stored():
    store, clock, told = MemoryStore(), Clock(), list[EditNotice]()
    session = await Session.create(store, "s", **OPTIONS, clock=clock, on_edit=told.append)
    life = Life(session, clock)
    for _ in range(6):
        await life.turn()
    made = [b for b in await bodies(store, "s") if getattr(b, "op", "") not in ("", "reveal")]
    assert [(one.op, one.handle) for one in told] == [(b.op, b.handle) for b in made]
    assert told


async def test_messages_that_repeat_are_told_apart_after_a_restart():
    store, clock = MemoryStore(), Clock()
    session = await Session.create(store, "s", **OPTIONS | {"policy": "layered"}, clock=clock)
    messages = [{"role": "user", "content": prose(600, "again")} for _ in range(60)]
    await session.sync(messages)
    last = await session.request()
    await session.recorder.checkpoint()
    assert session.window.base.last_evicted_seq > 0
    session = await Session.open(store, "s", clock=clock)
    await session.sync(deepcopy(messages))
    assert await session.request() == last
    said = [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    assert len(said) == len(messages)


KILLED = """
import asyncio, json, os, signal, sys
from trimtab.session import Session
from trimtab.stores import open_store

async def main():
    options, messages = json.load(sys.stdin)
    store = await open_store(sys.argv[1])
    session = await Session.create(store, "s", **options)
    for end in range(1, len(messages) + 1, 2):
        if end > 40:  # its last append is under way
            append = store.append
            async def killed(*args, **given):
                task = asyncio.ensure_future(append(*args, **given))
                await asyncio.sleep(0)
                os.kill(os.getpid(), signal.SIGKILL)
            store.append = killed
        await session.sync(messages[:end])
        await session.request()

asyncio.run(main())
"""


@pytest.mark.process
async def test_a_process_that_is_killed_in_a_sync_leaves_all_of_it_or_nothing(tmp_path):
    framework = Framework()
    for _ in range(10):
        framework.ask()
        framework.call_tools()
        framework.reply()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(tmp_path)), stdin=asyncio.subprocess.PIPE
    )
    await process.communicate(json.dumps([OPTIONS, framework.messages]).encode())
    assert process.returncode == -signal.SIGKILL
    store = await open_store(str(tmp_path))
    session = await Session.open(store, "s")
    await session.sync(framework.passed)
    said = [body.message for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    context = Context(**OPTIONS)
    context.sync(framework.messages)
    assert said == [e.body.message for e in context.events if isinstance(e.body, MessageAdded)]
    assert await rewinds(store) == []
    await store.close()
