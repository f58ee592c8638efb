"""What comes in is answered once, in order, and the reply goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.pictures import png
from tests.pictures import text as base64_of
from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.service.served_agents import (
    FORBIDDEN,
    PHONE,
    SESSION,
    Censor,
    Gated,
    inbound,
    served,
    until,
)
from tests.session.turns.sessions import definition
from tests.session.turns.test_appends import Recording
from trimtab.engine.log.event import TurnProgressRecord
from trimtab.engine.log.message import Media, Message, Text
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.session.events import COMPACTED_NOTICE
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.testing import MemoryStore
from trimtab.testing.replies import ScriptedCall
from trimtab_serve.channels.chat_commands import run_chat_command
from trimtab_serve.queue.messages import OutboundMessage, ReplyRoute
from trimtab_serve.service import retries, turn
from trimtab_serve.service.replies import STEP_LIMIT_TEXT
from trimtab_serve.service.turn import MAX_MESSAGES_PER_TURN

pytestmark = pytest.mark.anyio


class Hand:
    """A tool that waits to be let go."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.tool = Tool(definition=definition("look"), run=self.run)

    async def run(self, _: ToolInvocation) -> str:
        self.began.set()
        await self.go.wait()
        return "seen"


async def states(house: Any) -> list[str]:
    events = house.service.store.events(SESSION)
    return [
        event.body.state async for event in events if isinstance(event.body, TurnProgressRecord)
    ]


async def test_a_message_is_answered_and_the_reply_goes_out():
    house = served("Hello to you.")
    assert await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert await house.texts() == [("user", "Hello."), ("assistant", "Hello to you.")]
    assert [reply.text for reply in await house.sent()] == ["Hello to you."]


async def test_a_message_with_a_picture_that_no_model_takes_is_in_nobodys_way():
    """It may have been kept by an earlier release, or for another model."""
    house = served("It is broken.")
    cut = Media(kind="image", mime="image/png", data=base64_of(png()[:20]))
    said = Message(role="user", parts=(Text(text="Look."), cut))
    await house.service.post(replace(inbound("", key="a"), message=said))
    await house.turns.wait_until_idle()
    why = "it cannot be decoded: it is cut off after 20 bytes"
    assert await house.texts() == [
        ("user", "Look."),
        ("user", f"[image (image/png) left out: {why}]"),
        ("assistant", "It is broken."),
    ]


REJECTED = ProviderFailureDetails(
    kind="rejected", message="messages.0.content.1: Could not process image", status=400
)


async def test_what_a_provider_does_not_take_is_told_its_sender_and_no_dead_letter():
    house = served("Hello to you.", REJECTED, "And now I see.")
    for text, key in (("Hello.", "a"), ("What is it?", "b"), ("Never mind.", "c")):
        await house.say(text, key=key)
        await house.turns.wait_until_idle()
    told = [reply.text for reply in await house.sent()]
    assert told == [
        "Hello to you.",
        (
            "The model provider rejected this: “Could not process image”. I will ignore it from "
            "your next message on. Please say it in another way, or send another file."
        ),
        "And now I see.",
    ]
    assert await house.service.queue.list_dead_letters() == []
    assert await house.service.queue.pending(SESSION) == []
    assert "What is it?" not in str(house.provider.requests[-1])
    assert ("user", "What is it?") in await house.texts()


async def test_whose_next_message_is_not_taken_either_is_told_what_can_be_done():
    house = served(REJECTED, REJECTED)
    for key in "ab":
        await house.say("What is it?", key=key)
        await house.turns.wait_until_idle()
    first, second = [reply.text for reply in await house.sent()]
    assert second.startswith(first)
    assert "/undo removes your messages one by one, and /reset starts a new conversation." in second


async def say_together(house: Any, *texts: str) -> None:
    """One turn takes all of them."""
    for number, text in enumerate(texts):
        await house.service.queue.post(inbound(text, key=f"k{number}"))
    house.turns.request_turn(SESSION)
    await house.turns.wait_until_idle()


@pytest.mark.parametrize("forbidden", [{0}, {3}, {7}, {0, 4, 7}, set(range(8)), {1, 2}])
async def test_a_rejected_message_does_not_silence_the_others_of_its_turn(forbidden):
    provider = Censor()
    house = served(provider=provider)
    texts = [f"{FORBIDDEN if n in forbidden else 'question'} {n}" for n in range(8)]
    await say_together(house, *texts)
    answers = [reply.text for reply in await house.sent()]
    assert sum("flagged" in text for text in answers) == len(forbidden)
    answered = " ".join(sent for sent in provider.requests if FORBIDDEN not in sent)
    assert all((text in answered) == (n not in forbidden) for n, text in enumerate(texts))
    assert await house.service.queue.pending(SESSION) == []
    async with house.service.open_session(SESSION) as session:
        shown = [e.message.text async for e in session.messages() if e.message.role == "user"]
        assert shown == texts


async def test_a_message_that_does_not_fit_does_not_silence_the_others_of_its_turn():
    too_long = ProviderFailureDetails(kind="overflow", message="too long", limit=9_000, status=400)
    house = served(provider=Censor(ProviderError(too_long)))
    await say_together(house, "question", FORBIDDEN)
    assert [reply.text for reply in await house.sent()] == ["To question", retries.APOLOGY_TEXT]
    (left,) = await house.service.queue.pending(SESSION)
    assert left.key == "k1"


@pytest.mark.parametrize("unfit", [{0}, {1}, {3}, {0, 2}, {0, 1}])
async def test_a_message_that_cannot_fit_becomes_a_dead_letter_alone(unfit):
    too_long = ProviderFailureDetails(kind="overflow", message="too long", limit=9_000, status=400)
    provider = Censor(ProviderError(too_long))
    house = served(provider=provider)
    texts = [f"{FORBIDDEN if n in unfit else 'question'} {n}" for n in range(4)]
    await say_together(house, *texts)
    assert (await house.sent())[-1].text == retries.APOLOGY_TEXT
    answered = " ".join(sent for sent in provider.requests if FORBIDDEN not in sent)
    assert all((text in answered) == (n not in unfit) for n, text in enumerate(texts))
    waiting = await house.service.queue.pending(SESSION)
    assert [message.key for message in waiting] == [f"k{n}" for n in sorted(unfit)]
    (dead,) = await house.service.queue.list_dead_letters()
    assert dead.messages == len(unfit)


async def test_what_was_put_off_is_answered_after_a_crash():
    """The process dies after the first half was put off, and again after it was answered."""
    provider = Censor()
    house = served(provider=provider)
    queue: Any = house.service.queue
    finish = queue.finish_turn
    calls = 0

    async def dies(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise RuntimeError("killed")
        await finish(*args)

    queue.finish_turn = dies
    await say_together(house, "question 0", "question 1", f"{FORBIDDEN} 2", "question 3")
    first, rejection, last = [reply.text for reply in await house.sent()]
    assert (first, last) == ("To question 1", "To question 3")
    assert "flagged" in rejection


class Killed(BaseException):
    """The end of the process."""


async def test_a_crash_at_any_write_loses_no_notice_of_a_rejection(monkeypatch):
    """The process dies at each write of a turn once. Another message comes before it is back."""

    async def live(writes: int) -> tuple[list[str], bool]:
        house = served(provider=Censor())
        queue: Any = house.service.queue
        queue.on_posted = lambda _: None
        await queue.post(inbound(FORBIDDEN, key="a"))
        left = writes

        def dies_at(write: Any) -> Any:
            async def write_or_die(*args: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise Killed
                return await write(*args, **named)

            return write_or_die

        with monkeypatch.context() as patched:
            store: Any = house.service.store
            patched.setattr(store, "append", dies_at(store.append))
            patched.setattr(queue, "finish_turn", dies_at(queue.finish_turn))
            was_killed = False
            try:
                await house.service.run_turn(SESSION)
            except Killed:
                was_killed = True
        again = served(provider=Censor(), store=house.service.store, queue=queue)
        queue.on_posted = lambda _: None
        await queue.post(inbound("question", key="b"))
        await again.service.run_turn(SESSION)
        await again.service.run_turn(SESSION)
        assert await queue.pending(SESSION) == []
        return [reply.text for reply in await again.sent()], was_killed

    expected, _ = await live(writes=1_000)
    assert ["flagged" in text for text in expected] == [True, False]
    writes = 0
    was_killed = True
    while was_killed:
        writes += 1
        texts, was_killed = await live(writes)
        assert sorted(texts) == sorted(expected), writes
    assert writes > 5


async def test_what_came_while_a_tool_ran_and_is_rejected_does_not_spoil_its_turn():
    hand = Hand()
    provider = Gated(ScriptedCall(name="look"), *[REJECTED] * 2, "Seen.", "Three.")
    provider.open.set()
    house = served(provider=provider, tools=[hand.tool], on_message="steer")
    await house.say("One.", key="a")
    await hand.began.wait()
    await house.say("Two.", key="b")
    hand.go.set()
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()][-2:] == ["Seen.", "Three."]


async def served_with_put_off(provider: Censor) -> Any:
    """One turn has answered the first message and put off the second."""
    house = served(provider=provider)
    queue: Any = house.service.queue
    queue.on_posted = lambda _: None
    await queue.post(inbound("question", key="a"))
    await queue.post(inbound(FORBIDDEN, key="b"))
    await house.service.run_turn(SESSION)
    return house


async def test_undo_takes_a_message_that_was_put_off_for_the_newest():
    provider = Censor()
    house = await served_with_put_off(provider)
    reply = await run_chat_command(house.service, SESSION, "undo", "", idempotency_key="u")
    assert reply is not None
    assert f"“{FORBIDDEN}”" in reply.text
    await house.service.run_turn(SESSION)
    assert len(provider.requests) == 2


async def test_erasing_a_message_that_was_put_off_erases_what_waits():
    house = await served_with_put_off(Censor())
    await house.service.erase_message(SESSION, "m3")
    assert FORBIDDEN not in str(await house.service.queue.pending(SESSION))


async def test_a_message_that_comes_again_is_not_answered_again():
    house = served("Hello to you.")
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert not await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert len(await house.texts()) == 2
    assert len(await house.sent()) == 1


async def test_a_message_that_comes_again_past_the_check_changes_nothing(monkeypatch):
    house = served("Hello to you.")
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert len(await house.sent()) == 1
    before = await house.service.store.position(SESSION)

    async def unknown(*_: str) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(house.service.store, "find_key", unknown)
        queue = house.service.queue
        assert isinstance(queue, MemoryQueue)
        queue._answered.clear()  # as in a process that has begun since
        assert await queue.post(inbound("Hello.", key="a"))
    await house.turns.wait_until_idle()
    assert await house.service.store.position(SESSION) == before
    assert await house.sent() == []
    assert await house.service.queue.depth() == 0


async def test_a_turn_for_which_nothing_waits_writes_nothing():
    house = served("Hello to you.")
    ended = await house.service.run_turn(SESSION)
    assert (ended.reason, ended.calls) == ("done", 0)
    assert await house.service.store.position(SESSION) == 0
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    before = await house.service.store.position(SESSION)
    await house.service.run_turn(SESSION)
    assert await house.service.store.position(SESSION) == before


async def test_a_paused_turn_ends_after_its_step_and_is_not_taken_up_by_itself():
    hand = Hand()
    house = served(ScriptedCall(name="look"), "Both.", tools=[hand.tool])
    await house.say("Look.", key="a")
    await hand.began.wait()
    await house.say("And hurry.", key="b")
    assert house.service.pause_turn(SESSION)
    hand.go.set()
    await house.turns.wait_until_idle()
    assert not house.service.pause_turn(SESSION)
    assert house.provider.replies_left == 1
    assert await states(house) == ["claimed", "tool_started", "ended"]
    assert await house.service.queue.depth() == 0
    await house.say("Go on.", key="c")
    await house.turns.wait_until_idle()
    assert [text for _, text in await house.texts()] == ["Look.", "And hurry.", "Go on.", "Both."]


async def test_what_is_said_while_the_agent_works_steers_it():
    hand = Hand()
    house = served(ScriptedCall(name="look"), "Left it is.", tools=[hand.tool])
    await house.say("Look right.", key="a")
    await hand.began.wait()
    await house.say("No, left.", key="b")
    hand.go.set()
    await house.turns.wait_until_idle()
    assert [text for _, text in await house.texts()] == ["Look right.", "No, left.", "Left it is."]
    assert await states(house) == ["claimed", "tool_started", "ended"]
    assert [reply.text for reply in await house.sent()] == ["Left it is."]


async def test_what_is_said_while_the_agent_works_can_wait_for_a_turn_of_its_own():
    hand = Hand()
    house = served(
        ScriptedCall(name="look"), "Right.", "Left.", tools=[hand.tool], on_message="queue"
    )
    await house.say("Look right.", key="a")
    await hand.began.wait()
    await house.say("Now left.", key="b")
    hand.go.set()
    await house.turns.wait_until_idle()
    said = [text for _, text in await house.texts()]
    assert said == ["Look right.", "Right.", "Now left.", "Left."]
    assert [reply.text for reply in await house.sent()] == ["Right.", "Left."]


async def test_what_people_write_in_pieces_is_answered_at_once():
    house = served("All right.", debounce=0.5)
    for key in ("a", "b", "c"):
        await house.say(key, key=key)
        await asyncio.sleep(0.02)
    await house.turns.wait_until_idle()
    assert [text for _, text in await house.texts()] == ["a", "b", "c", "All right."]


async def test_a_turn_run_by_a_queue_gathers_by_itself():
    house = served("All right.", debounce=0.3)
    house.service.queue.on_posted = lambda _: None  # type: ignore[attr-defined] - nobody runs it here
    await house.say("a", key="a")
    running = asyncio.create_task(house.service.run_turn(SESSION))
    await asyncio.sleep(0.01)
    await house.say("b", key="b")
    await running
    assert [text for _, text in await house.texts()] == ["a", "b", "All right."]


async def test_more_than_one_turn_takes_is_answered_by_the_next_in_order():
    house = served(*(f"Reply {n}." for n in range(3)))
    due, house.service.queue.on_posted = house.turns.request_turn, lambda _: None  # type: ignore[attr-defined]
    count = 2 * MAX_MESSAGES_PER_TURN + 20
    for n in range(count):
        await house.say(f"{n}", key=f"k{n}")
    house.service.queue.on_posted = due  # type: ignore[attr-defined]
    assert await house.turns.resume_waiting() == 1
    await house.turns.wait_until_idle()
    said = [text for role, text in await house.texts() if role == "user"]
    assert said == [f"{n}" for n in range(count)]
    assert house.provider.replies_left == 0
    assert len(await house.sent()) == 3


async def test_long_messages_are_answered_by_several_turns_in_order(monkeypatch):
    monkeypatch.setattr(turn, "MAX_CHARS_PER_TURN", 100)
    house = served(*(f"Reply {n}." for n in range(4)))
    due, house.service.queue.on_posted = house.turns.request_turn, lambda _: None  # type: ignore[attr-defined]
    texts = ["a" * 60, "b" * 40, "c", "d" * 500, "e" * 99]
    for text in texts:
        await house.say(text, key=text[0])
    house.service.queue.on_posted = due  # type: ignore[attr-defined]
    await house.turns.resume_waiting()
    await house.turns.wait_until_idle()
    said = "".join(text[0] for _, text in await house.texts())
    assert said == "abRcRdReR"
    assert house.provider.replies_left == 0


async def test_a_steered_turn_takes_no_more_than_its_share_of_long_messages(monkeypatch):
    monkeypatch.setattr(turn, "MAX_CHARS_PER_TURN", 100)

    hand = Hand()
    house = served(ScriptedCall(name="look"), "Reply 1.", "Reply 2.", tools=[hand.tool])
    await house.say("a" * 50, key="a")
    await hand.began.wait()
    for text in ("b" * 50, "c" * 50):
        await house.say(text, key=text[0])
    hand.go.set()
    await house.turns.wait_until_idle()
    assert "".join(text[0] for _, text in await house.texts()) == "abRcR"


async def test_a_message_that_was_taken_before_a_crash_is_answered_once():
    store = MemoryStore()
    queue = MemoryQueue(store)
    gated = Gated()
    first = served(store=store, queue=queue, provider=gated)
    await first.say("Hello.", key="a")
    await until(lambda: gated.waiting)
    assert await first.turns.drain(0) == 1
    again = served("Hello to you.", store=store, queue=queue)
    assert await again.turns.resume_waiting() == 1
    await again.turns.wait_until_idle()
    assert await again.texts() == [("user", "Hello."), ("assistant", "Hello to you.")]
    assert len(await again.sent()) == 1


async def test_only_the_last_of_several_messages_is_added_with_the_claim():
    store = Recording(MemoryStore())
    house = served("Hello to you.", store=store, queue=MemoryQueue(store.inner))
    for text in ("a", "b"):
        await house.service.queue.post(inbound(text, key=text))
    await house.turns.wait_until_idle()
    claims = [each for each in store.appends if "claimed" in each]
    assert claims == [["user", "claimed"]]
    assert [text for role, text in await house.texts() if role == "user"] == ["a", "b"]
    assert store.appends[-1] == ["outcome", "assistant", "ended"]


class Forgetful(MemoryQueue):
    """A queue whose process ends before a turn is finished, so many times."""

    crashes = 1

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        if self.crashes:
            self.crashes -= 1
            raise ConnectionError("the process ended here")
        await super().finish_turn(session, epoch, answered, replies)


async def test_a_turn_whose_end_was_not_kept_is_not_asked_for_again_and_its_replies_go_out(
    monkeypatch,
):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.001)
    hand = Hand()
    hand.go.set()
    store = MemoryStore()
    house = served(
        ScriptedCall(name="look"), "Seen.", store=store, queue=Forgetful(store), tools=[hand.tool]
    )
    await house.say("Look.", key="a")
    await house.turns.wait_until_idle()
    assert house.provider.replies_left == 0
    assert await states(house) == ["claimed", "tool_started", "ended"]
    assert [(reply.text, reply.attempts) for reply in await house.sent()] == [("Seen.", 0)]


async def test_that_the_context_was_compacted_reaches_the_user_even_after_a_failed_attempt(
    monkeypatch,
):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.001)
    hand = Hand()
    hand.go.set()
    long = ProviderFailureDetails(kind="overflow", message="prompt is too long", status=400)
    broken = ProviderFailureDetails(kind="server", message="overloaded", status=500)
    house = served("One.", "Two.", long, long, broken, "Three.", tools=[hand.tool])
    for n, key in enumerate("abc"):
        await house.say(f"{key} " + "word " * 3_000 * (n < 2), key=key)
        await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == [
        "One.",
        "Two.",
        COMPACTED_NOTICE,
        "Three.",
    ]


async def test_a_turn_at_its_limit_says_so():
    hand = Hand()
    hand.go.set()
    house = served(
        ScriptedCall(name="look"),
        ScriptedCall(name="look"),
        tools=[hand.tool],
        max_tool_iterations=2,
    )
    await house.say("Look.", key="a")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == [STEP_LIMIT_TEXT]


async def test_the_reply_goes_where_the_last_message_came_from_or_nowhere():
    house = served("One.", "Two.")
    house.service.queue.on_posted = lambda _: None  # type: ignore[attr-defined] - answered below
    await house.say("a", key="a", route=ReplyRoute(channel="phone", address={"number": 1}))
    await house.say("b", key="b", route=PHONE)
    await house.say("c", key="c", route=None)
    await house.service.run_turn(SESSION)
    assert [reply.route for reply in await house.sent()] == [PHONE]
    await house.say("d", key="d", route=None)
    await house.service.run_turn(SESSION)
    assert await house.sent() == []


async def test_a_session_begun_anew_under_an_old_name_sends_its_replies():
    house = served("One.", "Two.")
    for key in "ab":
        await house.say("Hello.", key=key)
        await house.turns.wait_until_idle()
        if key == "a":
            assert len(await house.sent()) == 1
            await house.service.store.delete(SESSION)
    assert [reply.text for reply in await house.sent()] == ["Two."]
