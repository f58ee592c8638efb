"""Between two requests a turn can be told more, or told to end."""

from __future__ import annotations

import pytest

from tests.session.turns.sessions import Hand, act, create, log, of, reopened, say
from trimtab.engine.log.event import MessageAdded, TurnProgressRecord
from trimtab.session.events import TurnFinished
from trimtab.session.turn import TurnHooks
from trimtab.testing import ScriptedProvider
from trimtab.testing.replies import ScriptedCall

pytestmark = pytest.mark.anyio


class Between:
    """Says something at a moment, and ends the turn at another."""

    def __init__(self, session, *, says=0, ends=0) -> None:
        self.session = session
        self.says, self.ends = says, ends
        self.count = 0
        self.epochs: list[int | None] = []

    async def __call__(self) -> bool:
        self.count += 1
        self.epochs.append(self.session.recorder.epoch)
        if self.count == self.says:
            await self.session.add(say("And this."), key="more")
        return self.count != self.ends


async def roles(store):
    return [body.message.role for body in await log(store) if isinstance(body, MessageAdded)]


async def test_it_is_awaited_before_each_request_and_once_behind_the_last(memory):
    session, hand = await create(memory), Hand()
    between = Between(session)
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "Done."])
    told = await act(session, provider, [hand], hooks=TurnHooks(before_request=between))
    assert between.count == 3
    assert between.epochs == [1, 1, 1]
    assert [(e.reason, e.calls) for e in of(TurnFinished, told)] == [("done", 2)]


async def test_what_is_said_between_is_in_the_next_request(memory):
    session, hand = await create(memory), Hand()
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "Done."])
    await act(session, provider, [hand], hooks=TurnHooks(before_request=Between(session, says=2)))
    assert await roles(memory) == ["user", "assistant", "tool", "user", "assistant"]
    assert "And this." in str(provider.requests[1]["messages"][-1])


async def test_what_is_said_behind_the_last_word_is_answered_in_the_same_turn(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", ["Done.", "That, too."])
    told = await act(session, provider, hooks=TurnHooks(before_request=Between(session, says=2)))
    assert await roles(memory) == ["user", "assistant", "user", "assistant"]
    assert [(e.reason, e.calls) for e in of(TurnFinished, told)] == [("done", 2)]


async def test_a_turn_that_is_ended_between_is_ended_in_the_log_with_all_results_there(memory):
    session, hand = await create(memory), Hand()
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "Done."])
    told = await act(
        session, provider, [hand], hooks=TurnHooks(before_request=Between(session, ends=2))
    )
    assert [(e.reason, e.calls) for e in of(TurnFinished, told)] == [("stopped", 1)]
    assert await roles(memory) == ["user", "assistant", "tool"]
    states = [body.state for body in await log(memory) if isinstance(body, TurnProgressRecord)]
    assert states == ["claimed", "tool_started", "ended"]
    assert session.recorder.epoch is None


async def test_a_turn_that_is_ended_before_its_first_request_asks_nothing(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", ["Done."])
    told = await act(session, provider, hooks=TurnHooks(before_request=Between(session, ends=1)))
    assert [(e.reason, e.calls) for e in of(TurnFinished, told)] == [("stopped", 0)]
    assert provider.replies_left == 1


async def test_a_turn_that_is_ended_behind_its_last_word_is_done(memory):
    session = await create(memory)
    told = await act(
        session,
        ScriptedProvider("anthropic", ["Done."]),
        hooks=TurnHooks(before_request=Between(session, ends=2)),
    )
    assert [(e.reason, e.calls) for e in of(TurnFinished, told)] == [("done", 1)]


async def test_the_next_turn_goes_on_where_one_was_ended(memory):
    session, hand = await create(memory), Hand()
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "Done."])
    await act(session, provider, [hand], hooks=TurnHooks(before_request=Between(session, ends=2)))
    await act(await reopened(memory), provider, [hand], says="Go on.")
    assert await roles(memory) == ["user", "assistant", "tool", "user", "assistant"]
    assert len(hand.asked) == 1


async def test_what_fails_between_leaves_a_turn_that_can_be_done_again(memory):
    session = await create(memory)

    async def fails() -> bool:
        raise ConnectionError("the queue is away")

    provider = ScriptedProvider("anthropic", ["Done."])
    with pytest.raises(ConnectionError):
        await act(session, provider, hooks=TurnHooks(before_request=fails))
    assert session.recorder.epoch is None
    await act(session, provider, says=None)
    assert await roles(memory) == ["user", "assistant"]
