"""What channels hand in: whose it is, how much may wait, and what becomes of deleted sessions."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.service.served_agents import SESSION, Gated, inbound, served, until
from trimtab.engine.log.event import MessageAdded, TurnProgressRecord
from trimtab.errors import ProviderFailureDetails, SessionNotFound, StoreUnavailable
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service import service
from trimtab_serve.service.service import AgentNotServed, QueueFull

pytestmark = pytest.mark.anyio


async def test_a_message_for_an_agent_that_is_not_served_is_refused():
    house = served()
    for session in ("default/other/one", "nonsense"):
        with pytest.raises(AgentNotServed, match="available: helper"):
            await house.service.post(inbound("Hello.", key="a", session=session))


async def test_a_tenant_with_too_much_waiting_is_refused_and_others_are_not():
    gated = Gated(*["Done."] * 5)
    house = served(provider=gated, on_message="queue")
    house.service.max_queued_messages = 3
    for n in range(3):
        await house.say(f"{n}", key=f"{n}", session=f"a/helper/s{n}")
    with pytest.raises(QueueFull, match=r"3 messages wait \(limit 3\)"):
        await house.say("more", key="more", session="a/helper/s0")
    await house.say("0", key="0", session="b/helper/s0")
    gated.open.set()
    await house.turns.wait_until_idle()
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(QueueFull):  # a count that is too many holds for a moment
                assert await house.say("more", key="more", session="a/helper/s0")
                break
            await asyncio.sleep(0.001)
    await house.turns.wait_until_idle()


async def test_large_messages_wait_in_a_session_up_to_a_size_and_small_ones_beyond(monkeypatch):
    monkeypatch.setattr(service, "LARGE_MESSAGE_CHARS", 10)
    monkeypatch.setattr(service, "MAX_WAITING_BYTES_PER_SESSION", 10_000)
    gated = Gated(*["Done."] * 9)
    house = served(provider=gated, on_message="queue")
    assert await house.say("x" * 20_000, key="giant"), "if nothing waits, any size is accepted"
    with pytest.raises(QueueFull, match=r"100 characters.*limit 10,000\); send it when"):
        await house.say("y" * 100, key="y")
    assert await house.say("small", key="small")
    gated.open.set()
    await house.turns.wait_until_idle()
    gated.open.clear()
    assert await house.say("y" * 100, key="y")
    # Those that arrive together are counted together.
    posts = (house.say("z" * 3_000, key=f"{n}", session="b/helper/s") for n in range(10))
    results = await asyncio.gather(*posts, return_exceptions=True)
    assert [result for result in results if result is True] == [True] * 3
    gated.open.set()
    await house.turns.wait_until_idle()
    assert not house.service._arriving_chars


async def test_what_was_given_up_keeps_nobody_out():
    wrong = ProviderFailureDetails(kind="refused", message="revoked")
    house = served(*[wrong] * 4, *["Done."] * 2)
    house.service.max_queued_messages = 3
    for session in ("a/helper/s0", "a/helper/s1", "a/helper/s2", "b/helper/s0"):
        await house.say("before", key="before", session=session)
    await house.turns.wait_until_idle()
    assert len(await house.service.queue.list_dead_letters()) == 4
    for session in ("a/helper/s0", "a/helper/new"):
        assert await house.say("again", key="again", session=session)
    await house.turns.wait_until_idle()
    assert len(await house.service.queue.list_dead_letters()) == 3


async def test_what_waits_is_not_counted_for_each_message(monkeypatch):
    house = served(*["Done."] * 300)
    counted = []
    depth = house.service.queue.depth

    async def counting(prefix="", **limits):
        counted.append(prefix)
        return await depth(prefix, **limits)

    monkeypatch.setattr(house.service._backlog, "_count_waiting", counting)
    for n in range(200):
        await house.say(f"{n}", key=f"{n}")
    assert 1 <= len(counted) < 20
    await house.turns.wait_until_idle()


async def test_deleting_a_session_breaks_its_turn_off_and_leaves_nothing():
    gated = Gated("One.", "Two.")
    house = served(provider=gated)
    await house.say("Hello.", key="a")
    await until(lambda: gated.waiting)
    await house.say("Hello?", key="b")
    await house.service.delete_session(SESSION)
    await house.turns.wait_until_idle()
    assert await house.service.store.position(SESSION) == 0
    assert await house.service.queue.depth() == 0
    assert await house.sent() == []
    with pytest.raises(SessionNotFound):
        await house.service.delete_session(SESSION)
    gated.open.set()
    await house.say("Anew.", key="a")
    await house.turns.wait_until_idle()
    assert await house.texts() == [("user", "Anew."), ("assistant", "One.")]
    assert [reply.text for reply in await house.sent()] == ["One."]


async def test_what_is_deleted_on_files_is_not_sent_to_the_model_again(tmp_path):
    store = FileStore(tmp_path)
    gated = Gated("One.", "Two.")
    house = served(provider=gated, store=store, queue=await SqliteMessageQueue.open(store))
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    gated.open.set()
    await house.service.delete_session(SESSION)
    await house.turns.wait_until_idle()
    assert gated.begun == ["Forget this."]
    assert await store.position(SESSION) == 0
    await house.service.close()
    await store.close()


class Slow(MemoryQueue):
    """A queue that forgets when it is let, and says that it was asked to."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.may = asyncio.Event()
        self.asked: list[str] = []

    async def forget_session(self, session: str) -> None:
        self.asked.append(session)
        await self.may.wait()
        await super().forget_session(session)


async def test_messages_are_forgotten_before_a_turn_is_broken_off():
    store = MemoryStore()
    queue = Slow(store)
    gated = Gated("One.")
    house = served(provider=gated, store=store, queue=queue)
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    deleting = asyncio.create_task(house.service.delete_session(SESSION))
    await until(lambda: queue.asked)
    running = list(gated.waiting)
    queue.may.set()
    await deleting
    gated.open.set()
    await house.turns.wait_until_idle()
    assert running == gated.begun == ["Forget this."]


async def test_a_session_that_is_being_deleted_has_no_further_turn_before_it_is():
    gated = Gated("Anew.")
    house = served(provider=gated)
    asked, may = asyncio.Event(), asyncio.Event()

    async def held(_):
        asked.set()
        await may.wait()

    house.service.delete_hooks.append(held)
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    deleting = asyncio.create_task(house.service.delete_session(SESSION))
    await asked.wait()
    house.turns.request_turn(SESSION)
    await house.say("Another's.", key="a", session="default/helper/two")
    await until(lambda: "Another's." in gated.begun)
    assert gated.begun == ["Forget this.", "Another's."]
    may.set()
    await deleting
    gated.open.set()
    await house.turns.wait_until_idle()
    assert gated.begun == ["Forget this.", "Another's."]


async def test_whoever_watches_hears_the_turn():
    house = served("Hello to you.")
    with house.service.event_bus.subscribe(SESSION) as heard:
        await house.say("Hello.", key="a")
        await house.turns.wait_until_idle()
        kinds = [type(heard.get_nowait()).__name__ for _ in range(heard.qsize())]
    assert kinds[-2:] == ["AssistantReplied", "TurnFinished"]
    assert "TextDelta" in kinds


async def test_a_turn_that_does_not_run_here_is_asked_to_stop_wherever_it_does(monkeypatch):
    house = served()
    asked: list[str] = []
    monkeypatch.setattr(house.service.event_bus, "request_stop", asked.append)
    assert not house.service.stop_turn(SESSION)
    assert asked == [SESSION]


async def test_erasing_begins_the_turn_again_without_what_was_erased():
    gated = Gated("One.", "Two.")
    house = served(provider=gated)
    await house.say("Forget this.", key="a")
    await until(lambda: gated.waiting)
    await house.say("And this?", key="b")
    done = await house.service.erase_message(SESSION, "m2", why="asked")
    assert (done.handles, done.user_texts, done.forks) == (("m2",), ("Forget this.",), ())
    gated.open.set()
    await house.turns.wait_until_idle()
    assert gated.begun[0] == "Forget this."
    assert "Forget this." not in gated.begun[1:]
    assert "Forget this." not in str(gated.inner.requests)
    said = await house.texts()
    assert said[:2] == [("user", "[erased]"), ("user", "And this?")]
    assert said[2][0] == "assistant"
    assert await house.service.queue.depth() == 0
    assert [reply.text for reply in await house.sent()] == [text for _, text in said[2:]]


async def test_erasing_the_same_again_does_no_harm():
    house = served("Hello to you.")
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    first = await house.service.erase_message(SESSION, "m2")
    position = await house.service.store.position(SESSION)
    again = await house.service.erase_message(SESSION, "m2")
    assert again.handles == first.handles == ("m2",)
    assert await house.service.store.position(SESSION) == position


async def test_what_cannot_be_erased_is_told():
    house = served("Hello to you.")
    with pytest.raises(SessionNotFound):
        await house.service.erase_message(SESSION, "m2")
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    with pytest.raises(LookupError, match="there is no m99"):
        await house.service.erase_message(SESSION, "m99")


async def test_a_reply_that_is_erased_before_it_leaves_does_not_leave():
    house = served("You are Ada.", "Well.")
    await house.say("I am Ada.", key="a")
    await house.turns.wait_until_idle()
    await house.service.erase_message(SESSION, await reply_in(house))
    await house.say("And now?", key="b")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == ["Well."]


class Slipping(MemoryQueue):
    """A queue that cannot keep the first replies it is given: their turn is done again."""

    slipped = asyncio.Event()

    async def finish_turn(self, session, epoch, answered, replies):
        if not self.slipped.is_set():
            self.slipped.set()
            raise StoreUnavailable("the disk is away")
        await super().finish_turn(session, epoch, answered, replies)


async def test_a_turn_that_is_done_again_does_not_send_what_was_erased_in_between():
    store = MemoryStore()
    queue = Slipping(store)
    house = served("You are Ada.", store=store, queue=queue)
    await house.say("I am Ada.", key="a")
    await queue.slipped.wait()
    await house.service.erase_message(SESSION, await reply_in(house))
    await house.turns.wait_until_idle()
    assert await queue.depth() == 0
    assert await house.sent() == []


async def reply_in(house):
    """The handle of the one reply."""
    (found,) = [
        f"m{event.seq}"
        async for event in house.service.store.events(SESSION)
        if isinstance(event.body, MessageAdded) and event.body.message.role == "assistant"
    ]
    return found


async def test_an_erased_dead_letter_is_answered_without_its_text_when_it_is_revived():
    house = served(
        ProviderFailureDetails(kind="refused", message="revoked: Forget this."), "Hello."
    )
    await house.say("Forget this.", key="a")
    await house.turns.wait_until_idle()
    await house.service.erase_message(SESSION, "m2")
    (dead,) = await house.service.queue.list_dead_letters()
    assert "Forget" not in dead.why
    assert await house.service.queue.revive(SESSION)
    await house.turns.wait_until_idle()
    assert "Forget" not in str(house.provider.requests[1:])
    assert await house.texts() == [("user", "[erased]"), ("assistant", "Hello.")]


async def test_whoever_keeps_something_of_a_message_elsewhere_is_told_what_is_erased():
    house = served("Hello to you.")
    heard = []

    async def keeper(gone):
        heard.append((gone.session, gone.user_texts, sorted(gone.positions), sorted(gone.keys)))

    house.service.erase_hooks.append(keeper)
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    await house.service.erase_message(SESSION, "m2")
    assert heard == [(SESSION, ("Hello.",), [2], ["a"])] * 2  # before and after


async def test_what_waits_for_a_session_that_was_never_begun_can_be_deleted():
    store = MemoryStore()
    house = served(store=store, queue=MemoryQueue(store))
    house.service.queue.on_posted = lambda _: None  # type: ignore[attr-defined] - nobody answers here
    await house.say("Forget this.", key="a")
    await house.service.delete_session(SESSION)
    assert await house.service.queue.pending(SESSION) == []
    with pytest.raises(SessionNotFound):
        await house.service.delete_session(SESSION)


async def test_a_turn_of_another_process_leaves_no_reply_of_a_session_that_is_deleted():
    """It has claimed its turn and would finish it; whoever deletes claims another first."""
    house = served()
    house.service.queue.on_posted = lambda _: None  # type: ignore[attr-defined] - the other answers
    other = await house.service.agents["helper"].open_session(SESSION)
    epoch = await other.recorder.claim()
    await house.say("Forget this.", key="a")
    claimed: list[int] = []

    async def meanwhile(session):
        claimed.append(max(e.body.epoch for e in await log_of(house, session)))

    house.service.delete_hooks.append(meanwhile)
    await house.service.delete_session(SESSION)
    assert claimed == [epoch + 1]


async def log_of(house, session):
    events = [event async for event in house.service.store.events(session)]
    return [event for event in events if isinstance(event.body, TurnProgressRecord)]


async def test_what_waits_in_the_queue_is_redacted(tmp_path):
    """It may wait for hours, become a dead letter, and be in a copy of the database."""
    address = "ann.secret@example.org"
    store = FileStore(tmp_path)
    queue = await SqliteMessageQueue.open(store)
    house = served(queue=queue, store=store, redact=("email",))
    queue.on_posted = lambda session: None
    await house.say(f"My address is {address}.", key="a")
    (waiting,) = await queue.pending(SESSION, limit=1)
    assert waiting.message.text == "My address is [redacted: email]."
    stored = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(address.encode() in content for content in stored)
    await house.service.close()
    await store.close()
