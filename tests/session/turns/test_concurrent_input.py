"""What is said while a turn runs is answered once, and two turns of a session do not mix."""

import asyncio

import pytest

from tests.session.turns.sessions import (
    MODELS,
    Hand,
    act,
    create,
    log,
    say,
    settings_in,
    texts,
    valid,
)
from trimtab.session.model_call import WROTE_DURING_REPLY_NOTE
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio


class Interrupted(ScriptedProvider):
    """Somebody says something while the first reply is being written."""

    def __init__(self, dialect, replies, session, words):
        super().__init__(dialect, replies)
        self.session, self.words = session, words

    async def send(self, request):
        async for event in super().send(request):
            if self.words is not None:
                words, self.words = self.words, None
                await self.session.add(say(words))
            yield event


@pytest.mark.parametrize("dialect", MODELS)
async def test_what_is_said_while_the_last_reply_is_written_is_answered(memory, dialect):
    session = await create(memory, dialect)
    provider = Interrupted(dialect, ["A keel.", "And a rudder."], session, "And that?")
    await act(session, provider, says="What is it?")
    assert await texts(memory, "assistant") == ["A keel.", "And a rudder."]
    first, second = provider.requests
    assert "And that?" not in str(first)
    assert "And that?" in str(second)
    assert WROTE_DURING_REPLY_NOTE in str(second)
    assert valid(provider)
    assert not session.window.is_reply_due


async def test_two_turns_of_one_session_run_one_after_the_other(memory):
    session, begun, go_on = await create(memory), asyncio.Event(), asyncio.Event()

    async def wait(_):
        begun.set()
        await go_on.wait()
        return "read"

    hand = Hand(gives=wait)
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "First.", "Second."])
    first = asyncio.create_task(act(session, provider, [hand], says="One."))
    await asyncio.wait_for(begun.wait(), 10)
    second = asyncio.create_task(act(session, provider, [hand], says="Two."))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(first, second), 10)
    assert await texts(memory, "assistant") == ["", "First.", "Second."]
    assert await texts(memory, "tool") == ["read"]
    assert await texts(memory, "user") == ["One.", "Two."]
    assert ["Two." in str(request) for request in provider.requests] == [False, False, True]


async def test_without_tools_a_turn_leaves_those_the_session_has(memory):
    session = await create(memory, tools=[Hand().tool.definition])
    await run_turn(session, ScriptedProvider("anthropic", ["Yes."]), [Hand().tool], message=say())
    await run_turn(session, ScriptedProvider("anthropic", ["Yes."]), message=say())
    assert len(settings_in(await log(memory))) == 1
    await run_turn(session, ScriptedProvider("anthropic", ["Yes."]), [], message=say())
    assert settings_in(await log(memory))[-1].tools == ()


async def test_a_server_that_gives_every_reply_the_same_id_is_heard_each_time(memory):
    session = await create(memory)
    for words in ("One.", "Two."):
        await act(session, ScriptedProvider("anthropic", [words]))
    assert await texts(memory, "assistant") == ["One.", "Two."]
