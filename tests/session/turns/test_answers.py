"""What a turn returns: the answer, and what it used and cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conversations import user
from tests.session.turns.sessions import MODELS, WAIT, Hand, claude, create
from trimtab import Usage, run_turn
from trimtab.events import ModelCallFinished, TextDelta, TurnFinished
from trimtab.testing import ScriptedCall, ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

ASK = user("A hat today?")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", MODELS)
async def test_a_turn_returns_the_answer_and_what_all_its_calls_cost(memory, dialect, stream):
    session, events = await create(memory, dialect), list[Any]()
    call = ScriptedCall(name="read", arguments={"path": "sky"})
    provider = ScriptedProvider(dialect, [ScriptedReply(text="Let me see.", calls=(call,)), "Yes."])
    finished = await run_turn(
        session,
        provider,
        [Hand(gives="sun").tool],
        message=ASK,
        stream=stream,
        on_event=events.append,
    )
    assert finished.text == "Yes."
    assert finished.message == session.window.conversation.rounds[-1].entries[-1].message
    report = session.report()
    assert finished.usage == report.total_usage
    assert finished.cost == pytest.approx(report.cost)
    assert finished.usage.output > 0
    assert finished.cost > 0
    costs = [event.cost for event in events if isinstance(event, ModelCallFinished)]
    assert finished.cost == pytest.approx(sum(costs))
    assert events[-1] is finished
    second = await run_turn(session, provider)
    assert second == TurnFinished(reason="done", calls=0, usage=Usage(input=0), cost=0.0)
    assert second.text == ""


@pytest.mark.parametrize("dialect", MODELS)
async def test_a_message_that_comes_again_gets_the_answer_that_it_had(memory, dialect):
    session = await create(memory, dialect)
    call = ScriptedCall(name="read", arguments={"path": "sky"})
    provider = ScriptedProvider(
        dialect, [ScriptedReply(text="Let me see.", calls=(call,)), "Yes.", "Green."]
    )
    tools = [Hand(gives="sun").tool]
    await run_turn(session, provider, tools, message=ASK, key="first")
    await run_turn(session, provider, tools, message=user("Which one?"), key="second")
    again = await run_turn(session, provider, tools, message=ASK, key="first")
    assert (again.text, again.calls, again.cost) == ("Yes.", 0, 0.0)
    again = await run_turn(session, provider, tools, message=user("Which one?"), key="second")
    assert (again.text, again.calls) == ("Green.", 0)


async def test_a_retried_message_is_done_although_another_message_waits(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", ["Yes."])
    await run_turn(session, provider, message=ASK, key="first")
    await session.add(user("Which one?"))
    again = await run_turn(session, provider, message=ASK, key="first")
    assert (again.text, again.reason, again.calls) == ("Yes.", "done", 0)


async def test_each_of_several_callers_at_once_gets_the_reply_to_its_message(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", ["One.", "Two.", "Three.", "Four."])
    turns = [run_turn(session, provider, message=user(f"Number {n}?")) for n in range(4)]
    finished = await asyncio.gather(*turns)
    async for logged in session.messages():
        last = logged.message.text
    assert all(each.text for each in finished)
    assert last in {each.text for each in finished}


async def test_a_call_without_a_price_makes_the_cost_of_the_turn_unknown(memory):
    session = await create(memory, "openai_chat", model="unheard-of", context_window=9_000)
    finished = await run_turn(session, ScriptedProvider("openai_chat", ["Yes."]), message=ASK)
    assert (finished.text, finished.cost) == ("Yes.", None)
    assert finished.usage is not None


async def test_the_cost_of_a_reply_that_was_stopped_is_unknown(memory):
    session, stop = await create(memory), asyncio.Event()

    def stop_at_first_word(event: Any) -> None:
        if isinstance(event, TextDelta):
            stop.set()

    class Halting:
        """Says a word, and never the next."""

        dialect = "anthropic"

        async def send(self, request: Any) -> AsyncIterator[Any]:
            async for event in claude("Yes, a hat.").send(request):
                yield event
                if stop.is_set():
                    await asyncio.Event().wait()

    provider: Any = Halting()
    async with asyncio.timeout(WAIT):
        finished = await run_turn(
            session, provider, message=ASK, on_event=stop_at_first_word, stop=stop
        )
    assert finished.reason == "stopped"
    assert (finished.usage, finished.cost) == (None, None)
    assert finished.text
    assert "Yes, a hat.".startswith(finished.text)
