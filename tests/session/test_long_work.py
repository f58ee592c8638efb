"""Long texts are worked on in threads, and a session is still used by one caller at a time."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.conversations import user
from tests.session.session_user import options
from trimtab.engine.log.event import Event, MessageAdded
from trimtab.engine.log.message import make_text_message
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.recall.snippets import format_best_snippets
from trimtab.engine.window.window import Window
from trimtab.session import Session, store_recall, threads
from trimtab.session import recorder as recorder_module
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio

LONG = "heron " * (threads.MAX_INLINE_BYTES // 6 + 1)


class Function:
    """A caller's function that remembers its threads, and that a test can hold up."""

    def __init__(self, result=lambda *arguments: arguments[0]) -> None:
        self.result = result
        self.threads: list[threading.Thread] = []
        self.entered, self.released = threading.Event(), threading.Event()
        self.released.set()

    def __call__(self, *arguments, **named):
        self.threads.append(threading.current_thread())
        self.entered.set()
        assert self.released.wait(30)
        return self.result(*arguments, **named)

    def hold(self) -> None:
        self.entered.clear()
        self.released.clear()

    async def wait_until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)

    @property
    def last_ran_on_loop(self) -> bool:
        return self.threads[-1] is threading.current_thread()


async def create(name: str = "s", **own) -> Session:
    return await Session.create(MemoryStore(), name, **options(context_window=1_000_000, **own))


async def test_while_python_ends_a_long_message_is_read_at_once(monkeypatch):
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(threads, "_get_executor", lambda: ended)
    redact = Function()
    session = await create(redact=redact)
    await session.add(user(LONG))
    assert redact.last_ran_on_loop


async def test_a_long_message_is_read_in_a_thread_and_a_short_one_at_once():
    redact = Function()
    session = await create(redact=redact)
    await session.add(user("short"))
    assert redact.last_ran_on_loop
    await session.add(user(LONG))
    assert not redact.last_ran_on_loop
    assert session.window.entries[max(session.window.entries)].message.text == LONG


async def test_a_request_over_long_messages_is_built_in_a_thread():
    policy = Function(lambda *_: Decision())
    session = await create(policy=policy)
    await session.add(user("short"))
    await session.request()
    assert policy.last_ran_on_loop
    await session.add(user(LONG))
    await session.request()
    assert not policy.last_ran_on_loop


async def test_the_request_and_the_snapshot_of_many_short_messages_are_built_in_a_thread(
    monkeypatch,
):
    monkeypatch.setattr(recorder_module, "MESSAGE_BYTES", threads.MAX_INLINE_BYTES // 8)
    policy = Function(lambda *_: Decision())
    checkpoint = Function(Window.checkpoint)

    def take_checkpoint(window: Window):
        return checkpoint(window)

    monkeypatch.setattr(Window, "checkpoint", take_checkpoint)
    session = await create(policy=policy)
    for _ in range(8):
        await session.add(user("short"))
        await session.recorder.checkpoint()
    assert checkpoint.last_ran_on_loop
    await session.add(user("short"))
    await session.request()
    assert not policy.last_ran_on_loop
    await session.recorder.checkpoint()
    assert not checkpoint.last_ran_on_loop
    assert "short" in str(await session.request())


async def test_a_store_in_memory_stores_many_events_beside_other_work():
    session = await create()
    loop = asyncio.get_running_loop()
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1
        loop.call_soon(count)

    loop.call_soon(count)
    event = Event(
        seq=2, at=1.0, body=MessageAdded(message=make_text_message("user", "short"), sizes=())
    )
    events = [replace(event, seq=2 + n) for n in range(2_000)]
    await session.store.append("s", events)
    assert steps >= 4


async def test_a_search_in_long_messages_runs_in_a_thread(monkeypatch):
    find = Function(format_best_snippets)
    monkeypatch.setattr(store_recall, "passages", find)
    session = await create()
    await session.add(user("a short heron"))
    assert "a short heron" in await session.search("heron")
    assert find.last_ran_on_loop
    await session.add(user(LONG))
    assert "heron heron" in await session.search("heron")
    assert not find.last_ran_on_loop


async def test_a_long_log_is_folded_in_a_thread(monkeypatch):
    session = await create()
    await session.add(user(LONG))
    apply = Function(Window.apply)

    def fold(window: Window, *events: Event) -> None:
        apply(window, *events)

    monkeypatch.setattr(Window, "apply", fold)
    assert (await Session.open(session.store, "s")).window.seq == session.window.seq
    assert not apply.last_ran_on_loop


async def test_a_session_can_be_read_while_its_request_is_built():
    policy = Function(lambda *_: Decision())
    session = await create(policy=policy)
    await session.add(user(LONG))
    used, policy_runs = session.report().used, len(policy.threads)
    policy.hold()
    request = asyncio.create_task(session.request())
    await policy.wait_until_entered()
    assert session.report().used == used
    assert await session.recall("m2.0") == LONG
    waiting = [asyncio.create_task(each) for each in (session.pending_summary(), session.preview())]
    await asyncio.sleep(0)
    assert len(policy.threads) == policy_runs + 1  # no other runs it at the same time
    policy.released.set()
    assert LONG in str(await request)
    await asyncio.gather(*waiting)


async def test_who_is_cancelled_waits_for_the_thread_that_reads_the_session():
    redact = Function()
    session = await create(redact=redact)
    redact.hold()
    cancelled = asyncio.create_task(session.add(user(LONG)))
    await redact.wait_until_entered()
    next_add = asyncio.create_task(session.add(user("next")))
    cancelled.cancel()
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled, next_add], timeout=0.05)
    assert not cancelled.done()
    assert len(redact.threads) == 1
    redact.released.set()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await next_add
    assert [entry.message.text for entry in session.window.entries.values()] == ["next"]


async def test_other_sessions_work_on_while_every_thread_is_held_up():
    redact = Function()
    redact.hold()
    held = [await create(str(number), redact=redact) for number in range(threads.MAX_THREADS + 1)]
    adds = [asyncio.create_task(session.add(user(LONG))) for session in held]
    await redact.wait_until_entered()
    other = await create("other")
    await other.add(user("hello"))
    assert "hello" in str(await other.request())
    redact.released.set()
    await asyncio.gather(*adds)


async def test_work_that_waits_for_a_thread_ends_at_once_when_it_is_cancelled():
    redact = Function()
    redact.hold()
    held = [await create(str(number), redact=redact) for number in range(threads.MAX_THREADS + 1)]
    *running, waiting = [asyncio.create_task(session.add(user(LONG))) for session in held]
    await redact.wait_until_entered()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    redact.released.set()
    await asyncio.gather(*running)
    assert len(redact.threads) == threads.MAX_THREADS


def test_the_size_of_a_message_is_found_in_any_form_however_deep():
    block = {"type": "text", "text": LONG}
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    itself: list[object] = []
    itself.append(itself)
    for long in (user(LONG), {"role": "user", "content": [block]}, make_text_message("user", LONG)):
        assert threads.estimate_item_bytes(long) >= threads.MAX_INLINE_BYTES
    assert threads.estimate_item_bytes(deep) == 100_001
    assert threads.estimate_item_bytes(itself) > threads.MAX_INLINE_BYTES
    assert threads.estimate_item_bytes(user("short")) < 20
    assert threads.estimate_item_bytes(None) == 0
