"""A turn that was cut off goes on where the log ends."""

import asyncio
import re

import pytest

from tests.session.failing_stores import Wrapped
from tests.session.turns.sessions import (
    WAIT,
    Cut,
    Ending,
    Hand,
    act,
    create,
    found,
    of,
    reopened,
    results_in,
    say,
    started,
    texts,
    valid,
)
from trimtab.engine.log.event import MessageAdded, ToolResultRepair, TurnProgressRecord
from trimtab.engine.log.event import ModelCall as CallEvent
from trimtab.errors import StaleOwner
from trimtab.session import loading
from trimtab.session.events import ToolFinished, ToolStarted, TurnFinished
from trimtab.session.tools import UNKNOWN_OUTCOME_TEXT
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio

KEY = re.compile(r"s/\d+/m\d+\.\d+/(?P<id>.+)")


class CutStore(Wrapped):
    """Ends the process before or after it has stored what it is told to wait for."""

    def __init__(self, store, when, what):
        super().__init__(store)
        self.when, self.what = when, what

    async def append(self, session, events, *, epoch=None):
        hit = self.what is not None and any(self.what(event.body) for event in events)
        if hit and self.when == "before":
            self.what = None
            raise Cut
        await self.inner.append(session, events, epoch=epoch)
        if hit:
            self.what = None
            raise Cut


def is_reply(body):
    return isinstance(body, MessageAdded) and body.message.role == "assistant"


def is_start(body):
    return isinstance(body, TurnProgressRecord) and body.state == "tool_started"


def starts(body, call):
    return isinstance(body, TurnProgressRecord) and str(body.key).endswith(call)


def is_result(body):
    return isinstance(body, MessageAdded) and bool(body.message.results)


def is_call(body):
    return isinstance(body, CallEvent)


def is_end(body):
    return isinstance(body, TurnProgressRecord) and body.state == "ended"


def is_question(body):
    return (
        isinstance(body, MessageAdded) and body.message.role == "user" and not body.message.results
    )


# Where it is cut off; then how many calls of the model are made in all, how often the tool runs,
# and what its result is.
PLACES = {
    "before the question is recorded": ("before", is_question, 2, 1, "done"),
    "after the question is recorded": ("after", is_question, 2, 1, "done"),
    "before the call is recorded": ("before", is_call, 2, 1, "done"),
    "after the call is recorded": ("after", is_call, 2, 1, "done"),
    "before the reply is recorded": ("before", is_reply, 3, 1, "done"),
    "after the reply is recorded": ("after", is_reply, 2, 1, "done"),
    "before the tool is started": ("before", is_start, 2, 1, "done"),
    "after the tool is started": ("after", is_start, 2, 0, UNKNOWN_OUTCOME_TEXT),
    "before the result is recorded": ("before", is_result, 2, 1, UNKNOWN_OUTCOME_TEXT),
    "after the result is recorded": ("after", is_result, 2, 1, "done"),
    # The end is recorded with the last reply.
    "before the end is recorded": ("before", is_end, 3, 1, "done"),
    "after the end is recorded": ("after", is_end, 2, 1, "done"),
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_goes_on_wherever_it_was_cut_off(memory, where, stream):
    when, what, calls, runs, result = PLACES[where]
    session, hand = await create(CutStore(memory, when, what)), Hand()
    provider = ScriptedProvider("anthropic", [replies] * 4)
    with pytest.raises(Cut):
        await act(session, provider, [hand], key="k", stream=stream)
    told = await act(await reopened(memory), provider, [hand], key="k", stream=stream)
    assert isinstance(told[-1], TurnFinished)
    assert told[-1].reason == "done"
    assert await texts(memory, "user") == ["Go."]
    assert await texts(memory, "assistant") == ["", "Done."]
    assert await texts(memory, "tool") == [result]
    assert (len(provider.requests), len(hand.asked)) == (calls, runs)
    assert valid(provider)
    assert not await found(memory, ToolResultRepair)


def replies(request):
    answered = any(each["role"] == "assistant" for each in request["messages"])
    return "Done." if answered else ScriptedCall(name="read", id="c1")


async def test_a_turn_goes_on_after_a_restart_of_every_store(store):
    session, hand = await create(CutStore(store, "after", is_start)), Hand()
    provider = ScriptedProvider("anthropic", [replies] * 4)
    with pytest.raises(Cut):
        await act(session, provider, [hand], key="k")
    await act(await reopened(store), provider, [hand], key="k")
    assert await texts(store, "tool") == [UNKNOWN_OUTCOME_TEXT]
    assert hand.asked == []
    assert len(provider.requests) == 2


async def test_between_the_results_of_parallel_calls_only_what_is_missing_is_done(memory):
    """One has its result, one ran and lost it, one had not been started."""
    session = await create(memory)
    gone, kept = asyncio.Event(), asyncio.Event()

    async def first(_):
        return "of a"

    async def second(_):
        gone.set()
        await asyncio.get_running_loop().create_future()

    async def dies(_):
        await gone.wait()
        await kept.wait()
        raise Ending

    hands = [Hand(name="a", gives=first), Hand(name="b", gives=second), Hand(name="c", gives=dies)]
    calls = [ScriptedCall(name=hand.name, id=hand.name) for hand in hands]
    provider = ScriptedProvider("anthropic", [calls, "Done."])
    tools = [hand.tool for hand in hands]

    def tell(happening):
        if isinstance(happening, ToolFinished):
            kept.set()

    with pytest.raises(Ending):
        async with asyncio.timeout(WAIT):
            await run_turn(session, provider, tools, message=say(), on_event=tell)
    assert await texts(memory, "tool") == ["of a"]
    told = await act(await reopened(memory), provider, hands, says=None)
    assert results_in(provider.requests[1]) == ["of a", UNKNOWN_OUTCOME_TEXT, UNKNOWN_OUTCOME_TEXT]
    assert [len(hand.asked) for hand in hands] == [1, 1, 1]
    assert of(ToolStarted, told) == []
    assert [each.is_error for each in of(ToolFinished, told)] == [True, True]
    assert len(provider.requests) == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_tool_that_may_be_run_again_is_and_under_the_same_key(memory, when):
    store = CutStore(memory, when, is_result)
    session, hand = await create(store), Hand(own={"on_interrupt": "rerun"})
    provider = ScriptedProvider("anthropic", [replies] * 4)
    with pytest.raises(Cut):
        await act(session, provider, [hand])
    await act(await reopened(memory), provider, [hand], says=None)
    runs = 2 if when == "before" else 1
    assert len(hand.asked) == runs
    assert len(set(hand.keys)) == 1
    assert await texts(memory, "tool") == ["done"]


async def test_a_key_stays_the_same_however_often_a_tool_is_interrupted(memory):
    session = await create(memory)
    lives = iter(range(4))

    async def dies(_):
        if next(lives) < 3:
            raise Ending
        return "at last"

    hand = Hand(gives=dies, own={"on_interrupt": "rerun"})
    provider = ScriptedProvider("anthropic", [replies] * 4)
    for attempt in range(3):
        with pytest.raises(Ending):
            await act(session, provider, [hand], says="Go." if attempt == 0 else None)
        session = await reopened(memory)
    await act(session, provider, [hand], says=None)
    (key,) = set(hand.keys)
    assert len(hand.keys) == 4
    assert key == (await started(memory))[0]
    match = KEY.fullmatch(key)
    assert match is not None
    assert match["id"] == "c1"
    assert key.startswith("s/1/")
    assert await texts(memory, "tool") == ["at last"]


@pytest.mark.parametrize(("answer", "runs"), [(True, 2), (False, 1)])
async def test_whoever_is_to_be_asked_is_asked_once(memory, answer, runs):
    session = await create(CutStore(memory, "before", is_result))
    hand = Hand(own={"on_interrupt": "ask"})
    provider = ScriptedProvider("anthropic", [replies] * 4)
    questions = []

    async def ask(call):
        questions.append(call.id)
        return answer

    with pytest.raises(Cut):
        await act(session, provider, [hand], confirm_rerun=ask)
    assert questions == []
    await act(await reopened(memory), provider, [hand], says=None, confirm_rerun=ask)
    await act(await reopened(memory), provider, [hand], says=None, confirm_rerun=ask)
    assert questions == ["c1"]
    assert len(hand.asked) == runs
    assert len(set(hand.keys)) == 1
    assert await texts(memory, "tool") == ["done" if answer else UNKNOWN_OUTCOME_TEXT]


async def test_where_nobody_can_be_asked_the_outcome_is_unknown(memory):
    session = await create(CutStore(memory, "before", is_result))
    hand = Hand(own={"on_interrupt": "ask"})
    provider = ScriptedProvider("anthropic", [replies] * 4)
    with pytest.raises(Cut):
        await act(session, provider, [hand])
    await act(await reopened(memory), provider, [hand], says=None)
    assert await texts(memory, "tool") == [UNKNOWN_OUTCOME_TEXT]


async def test_a_started_tool_is_remembered_behind_a_snapshot(memory, monkeypatch):
    monkeypatch.setattr(loading, "MIN_CHECKPOINT_EVENTS", 1)
    session, hand = await create(CutStore(memory, "after", is_start)), Hand()
    provider = ScriptedProvider("anthropic", [replies] * 4)
    with pytest.raises(Cut):
        await act(session, provider, [hand])
    twin = await reopened(memory)
    await twin.recorder.checkpoint()
    await act(await reopened(memory), provider, [hand], says=None)
    assert await texts(memory, "tool") == [UNKNOWN_OUTCOME_TEXT]
    assert hand.asked == []


async def test_an_id_that_ends_like_another_is_not_taken_for_started(memory):
    """Ids are the provider's: they may hold what a key is made of."""
    session = await create(memory, "openai_chat")

    async def dies(_):
        raise Ending

    hands = [Hand(name="a", gives=dies), Hand(name="b")]
    calls = [ScriptedCall(name="a", id="x/b"), ScriptedCall(name="b", id="b")]
    provider = ScriptedProvider("openai_chat", [calls, "Done."])
    store = CutStore(memory, "before", lambda body: starts(body, ".1/b"))
    session.store = store
    with pytest.raises((Ending, Cut)):
        await act(session, provider, hands)
    await act(await reopened(memory), provider, hands, says=None)
    assert await texts(memory, "tool") in (
        ["done", UNKNOWN_OUTCOME_TEXT],
        [UNKNOWN_OUTCOME_TEXT, "done"],
    )
    assert len(hands[1].asked) == 1


async def test_a_question_that_comes_while_a_turn_is_cut_off_is_answered_with_it(memory):
    session, hand = await create(CutStore(memory, "after", is_start)), Hand()
    provider = ScriptedProvider("anthropic", [replies] * 4)
    with pytest.raises(Cut):
        await act(session, provider, [hand], says="First.")
    await act(await reopened(memory), provider, [hand], says="Second.")
    assert results_in(provider.requests[1]) == [UNKNOWN_OUTCOME_TEXT]
    assert "Second." in str(provider.requests[1]["messages"])
    assert valid(provider)


async def test_a_worker_that_was_overtaken_in_a_tool_stops_and_its_result_is_not_taken(store):
    first = await create(store)
    second = await reopened(store)
    running, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_):
        running.set()
        await go_on.wait()
        return "late"

    hand, provider = Hand(gives=slow), ScriptedProvider("anthropic", [replies] * 4)
    turn = asyncio.create_task(act(first, provider, [hand], key="k"))
    async with asyncio.timeout(WAIT):
        await running.wait()
        await act(second, provider, [hand], key="k", wait=None)
        go_on.set()
        with pytest.raises(StaleOwner):
            await turn
    assert await texts(store, "tool") == [UNKNOWN_OUTCOME_TEXT]
    assert await texts(store, "assistant") == ["", "Done."]
    assert len(hand.asked) == 1
    assert valid(provider)
    # It has lost the turn, not the session.
    await first.add(say("Thanks."))


async def test_a_worker_that_was_overtaken_in_a_reply_records_none_and_starts_no_tool(store):
    first, second = await create(store), await reopened(store)
    hand = Hand()

    class Slow(ScriptedProvider):
        async def send(self, request):
            async for event in super().send(request):
                yield event
            await second.recorder.claim()

    provider = Slow("anthropic", [replies])
    with pytest.raises(StaleOwner):
        await act(first, provider, [hand])
    assert hand.asked == []
    assert await texts(store, "assistant") == []
    assert await started(store) == []


async def test_no_tool_is_started_by_a_worker_that_was_overtaken(memory):
    """Overtaken just when the first of its parallel tools has begun: the second never does."""
    first, second = await create(memory), await reopened(memory)

    async def overtaken(_):
        await second.recorder.claim()
        return "too late"

    hands = [Hand(name="a", gives=overtaken), Hand(name="b")]
    store = first.store
    slow = _Held(store)
    first.store = slow
    calls = [ScriptedCall(name="a", id="a"), ScriptedCall(name="b", id="b")]
    provider = ScriptedProvider("anthropic", [calls])
    with pytest.raises(StaleOwner):
        async with asyncio.timeout(WAIT):
            await run_turn(first, provider, [hand.tool for hand in hands], message=say())
    assert [len(hand.asked) for hand in hands] == [1, 0]
    assert len(await started(memory)) == 1
    assert await texts(memory, "tool") == []


class _Held(Wrapped):
    """Lets the second tool's start wait until somebody else has claimed the turn."""

    async def append(self, session, events, *, epoch=None):
        if any(starts(event.body, "/b") for event in events):
            claimed = 1
            while claimed < 2:
                log = [event.body async for event in self.inner.events(session)]
                claimed = sum(
                    isinstance(body, TurnProgressRecord) and body.state == "claimed" for body in log
                )
                await asyncio.sleep(0)
        await self.inner.append(session, events, epoch=epoch)


async def test_a_tool_call_of_an_imported_history_is_not_executed(memory):
    session = await create(memory)
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    history = [say("Read it."), {"role": "assistant", "content": [call]}]
    await session.sync(history)
    hand = Hand()
    provider = ScriptedProvider("anthropic", ["Hello again."])
    await act(session, provider, [hand], says="Months later.")
    assert not hand.asked
    assert UNKNOWN_OUTCOME_TEXT in str(provider.requests[-1]["messages"])
