"""A turn is cancelled at every point at which it waits, and goes on as if nothing had been."""

import asyncio
from collections import Counter

import pytest

from tests.session.turns.cancel_at_suspension import Pausing, PausingProvider, Suspensions, pause
from tests.session.turns.sessions import (
    WAIT,
    Hand,
    act,
    create,
    found,
    reopened,
    say,
    started,
    texts,
    valid,
)
from tests.stores import places
from trimtab.engine.log.event import MessageAdded, TurnProgressRecord
from trimtab.session import loading
from trimtab.session.tools import UNKNOWN_OUTCOME_TEXT
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall

pytestmark = pytest.mark.anyio

MOST = 2_000
"""Points that no turn here comes near."""
REPLIES = (
    [ScriptedCall(name="read", id="a"), ScriptedCall(name="list", id="b")],
    [
        ScriptedCall(name="read", id="c"),
        ScriptedCall(name="search_history", id="d", arguments={"query": "Go"}),
    ],
    "Done.",
)
RAN = {"a": "read", "b": "list", "c": "read"}


class Life:
    """A turn of two rounds with parallel calls, and whoever takes it up again."""

    def __init__(self, store):
        self.store = store
        self.ran: list[str] = []
        self.provider = PausingProvider("anthropic", [self.replies] * 40)
        self.hands = [Hand(name=name, gives=self.gives) for name in ("read", "list")]

    def replies(self, request):
        return REPLIES[sum(each["role"] == "assistant" for each in request["messages"])]

    async def gives(self, asked):
        await pause()
        self.ran.append(asked.key)
        await pause()
        return f"from {asked.name}"

    async def turn(self, session):
        tools = [hand.tool for hand in self.hands]
        return await run_turn(session, self.provider, tools, message=say(), key="k")

    async def check(self):
        """What must hold at the end, however often it was cancelled."""
        assert await texts(self.store, "user") == ["Go."]
        assert await texts(self.store, "assistant") == ["", "", "Done."]
        said = [each.message for each in await found(self.store, MessageAdded)]
        answered = [result.call_id for message in said for result in message.results]
        assert sorted(answered) == ["a", "b", "c", "d"]
        # Nothing ran twice; what ran and is not known to have is said to be unknown.
        assert max(Counter(self.ran).values()) == 1
        assert set(self.ran) <= set(await started(self.store))
        for message in said:
            for result in message.results:
                assert result.text in ("from read", "from list", UNKNOWN_OUTCOME_TEXT) or (
                    result.call_id == "d" and "Go." in result.text
                )
        results = await texts(self.store, "tool")
        assert len(self.ran) + results.count(UNKNOWN_OUTCOME_TEXT) >= len(RAN)
        assert valid(self.provider)
        # Each request asks for the reply that comes next: none that was recorded is asked for.
        numbers = [
            sum(message["role"] == "assistant" for message in request["messages"])
            for request in self.provider.requests
        ]
        assert numbers == sorted(numbers)
        assert Counter(numbers).keys() == {0, 1, 2}
        states = [turn.state for turn in await found(self.store, TurnProgressRecord)]
        assert states[-1] == "ended"


@pytest.fixture
def often(monkeypatch):
    """Checkpoints come within the turn, too."""
    monkeypatch.setattr(loading, "MIN_CHECKPOINT_EVENTS", 5)


@pytest.fixture(params=["memory", "files"])
def kind(request):
    return request.param


async def each_point(kind, folder, go_on, and_then=None):
    """Cancel at the first point, the second and so on; the number of points there are."""
    for point in range(1, MOST):
        with places.made(kind, folder / str(point), "") as place:
            inner = await place.open()
            life = Life(Pausing(inner))
            session = await create(life.store, recall=True)
            ended = await Suspensions(point).run(lambda life=life, s=session: life.turn(s))
            async with asyncio.timeout(WAIT):
                await go_on(life, session)
            await life.check()
            if and_then is not None:
                await and_then(life, session)
            await inner.close()
            if ended:
                return point
    raise AssertionError("the turn never came to its end")


@pytest.mark.slow
@pytest.mark.soak_on("files")
async def test_the_same_session_goes_on_wherever_it_was_cancelled(kind, tmp_path, often):
    async def go_on(life, session):
        again = await life.turn(session)
        assert again.reason == "done"

    assert await each_point(kind, tmp_path, go_on) > 80


@pytest.mark.slow
@pytest.mark.soak_on("files")
async def test_a_session_opened_again_goes_on_wherever_it_was_cancelled(kind, tmp_path, often):
    async def go_on(life, session):
        twin = await reopened(life.store)
        again = await life.turn(twin)
        assert again.reason == "done"

    async def and_then(life, session):
        # The one that was cancelled can be spoken to, and sees what the other did.
        await session.add(say("Thanks."))
        assert (await texts(life.store, "user"))[-1] == "Thanks."
        assert session.window.seq == await life.store.position("s")
        assert session.window.conversation.rounds[-2].entries[0].message.text == "Done."

    assert await each_point(kind, tmp_path, go_on, and_then) > 80


async def test_being_cancelled_again_and_again_comes_to_an_end(tmp_path, often):
    """Each time a little later, on the same session, until it is through."""
    for first in range(3, 40, 7):
        with places.made("memory", tmp_path, "") as place:
            life = Life(Pausing(await place.open()))
            session = await create(life.store, recall=True)
            point, ended = first, False
            while not ended:
                ended = await Suspensions(point).run(lambda life=life, s=session: life.turn(s))
                point += 3
                assert point < MOST
            said = await texts(life.store, "assistant")
            assert said == ["", "", "Done."]
            assert max(Counter(life.ran).values(), default=1) == 1
            assert valid(life.provider)


async def test_a_task_cancelled_while_tools_run_leaves_their_outcome_unknown(memory):
    session = await create(memory)
    both, never = asyncio.Barrier(3), asyncio.Event()

    async def hangs(_):
        await both.wait()
        await never.wait()

    async def quick(_):
        return "quick"

    hands = [Hand(name="a", gives=hangs), Hand(name="b", gives=hangs), Hand(name="c", gives=quick)]
    calls = [ScriptedCall(name=hand.name) for hand in hands]
    provider = PausingProvider("anthropic", [calls, "I cannot know."])
    turn = asyncio.create_task(act(session, provider, hands))
    async with asyncio.timeout(WAIT):
        await both.wait()
        while await texts(memory, "tool") != ["quick"]:
            await pause()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    told = await act(session, provider, hands, says=None)
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    assert await texts(memory, "tool") == ["quick", UNKNOWN_OUTCOME_TEXT, UNKNOWN_OUTCOME_TEXT]
    assert [len(hand.asked) for hand in hands] == [1, 1, 1]
    assert valid(provider)
