"""The agentic loop: ask, run, ask again, until the last word."""

import json
from dataclasses import replace

import pytest

from tests.conversations import prose
from tests.session.turns.sessions import (
    MODELS,
    Hand,
    act,
    claude,
    create,
    found,
    of,
    reopened,
    results_in,
    say,
    texts,
    valid,
    words_in,
)
from trimtab.engine.log.event import CallOutcome, ToolResultRepair, TurnProgressRecord, Usage
from trimtab.engine.log.event import ModelCall as CallEvent
from trimtab.session.events import AssistantReplied, TextDelta, TurnFinished, turn_event_to_json
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

NOTHING_DONE = TurnFinished(reason="done", calls=0, usage=Usage(input=0), cost=0.0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", MODELS)
async def test_a_plain_reply_is_told_and_kept(memory, dialect, stream):
    session = await create(memory, dialect)
    told = await act(session, ScriptedProvider(dialect, ["A keel."]), stream=stream)
    (replied,) = of(AssistantReplied, told)
    assert replied.message.text == "A keel."
    assert replied.usage is not None
    assert replied.usage.input > 0
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    assert await texts(memory, "assistant") == ["A keel."]
    assert bool(of(TextDelta, told)) is stream


async def test_the_whole_loop_runs_on_every_store(store):
    session, hand = await create(store), Hand(gives="the file")
    provider = claude(ScriptedCall(name="read", arguments={"path": "a"}), "It is a file.")
    told = await act(session, provider, [hand])
    assert [type(each).__name__ for each in told if not isinstance(each, TextDelta)] == [
        *(
            "TurnStarted",
            "ModelCallStarted",
            "ModelCallFinished",
            "AssistantReplied",
            "ToolStarted",
            "ToolFinished",
        ),
        *("ModelCallStarted", "ModelCallFinished", "AssistantReplied", "TurnFinished"),
    ]
    assert hand.asked[0].arguments == {"path": "a"}
    assert await texts(store, "tool") == ["the file"]
    assert [turn.state for turn in await found(store, TurnProgressRecord)] == [
        "claimed",
        "tool_started",
        "ended",
    ]
    assert results_in(provider.requests[1]) == ["the file"]
    assert valid(provider)
    assert session.recorder.epoch is None
    twin = await reopened(store)
    assert not twin.window.conversation.open_calls()
    await act(twin, claude("Yes."), [hand], says="Sure?")
    assert await texts(store, "assistant") == ["", "It is a file.", "Yes."]


@pytest.mark.parametrize("dialect", MODELS)
async def test_pieces_come_in_order_and_before_the_reply(memory, dialect):
    session = await create(memory, dialect)
    said = prose(400)
    told = await act(session, ScriptedProvider(dialect, [said]))
    pieces = [each for each in told if isinstance(each, TextDelta)]
    assert len(pieces) > 2
    assert {piece.kind for piece in pieces} == {"text"}
    assert "".join(piece.text for piece in pieces) == said
    (replied,) = of(AssistantReplied, told)
    assert told.index(pieces[-1]) < told.index(replied)


async def test_what_was_said_under_a_key_is_answered_once(store):
    session = await create(store)
    provider = claude("One.", "Two.")
    await act(session, provider, says="Pay.", key="update-1")
    for asked in (session, await reopened(store)):
        told = await act(asked, provider, says="Pay.", key="update-1")
        assert told[1:] == [replace(NOTHING_DONE, message=told[1].message)]
        assert told[1].text == "One."
    assert await texts(store, "user") == ["Pay."]
    assert len(provider.requests) == 1
    await act(session, provider, says="Pay more.", key="update-2")
    assert len(provider.requests) == 2


async def test_nothing_said_is_nothing_done(memory):
    session = await create(memory)
    told = await act(session, claude(), says=None)
    assert told[1:] == [NOTHING_DONE]


async def test_what_is_said_while_tools_run_is_in_the_next_call(store):
    session = await create(store)

    async def gives(_):
        await session.add(say("Not that file!"))
        return "a file"

    provider = claude(ScriptedCall(name="read"), "Sorry.")
    await act(session, provider, [Hand(gives=gives)])
    assert "Not that file!" in words_in(provider.requests[1])
    assert valid(provider)


async def test_what_another_process_says_while_tools_run_is_in_the_next_call(memory):
    session, other = await create(memory), await reopened(memory)

    async def gives(_):
        await other.add(say("Not that file!"))
        return "a file"

    provider = claude([ScriptedCall(name="read"), ScriptedCall(name="read")], "Sorry.")
    await act(session, provider, [Hand(gives=gives)])
    assert words_in(provider.requests[1]).count("Not that file!") == 2
    assert valid(provider)


async def test_what_is_said_while_the_model_replies_is_in_the_next_call(memory):
    session = await create(memory)
    told = []

    class Speaks(ScriptedProvider):
        async def send(self, request):
            if not self.requests:
                await session.add(say("Hurry!"))
            async for event in super().send(request):
                yield event

    provider = Speaks("anthropic", [ScriptedCall(name="read"), "Done."])
    await run_turn(session, provider, [Hand().tool], message=say(), on_event=told.append)
    assert "Hurry!" in words_in(provider.requests[1])
    assert of(AssistantReplied, told)[0].message.calls
    assert valid(provider)


@pytest.mark.parametrize("dialect", MODELS)
async def test_a_reply_that_says_nothing_leaves_a_history_that_can_be_sent(memory, dialect):
    session = await create(memory, dialect)
    provider = ScriptedProvider(dialect, [ScriptedCall(name="read"), "", "Well."])
    told = await act(session, provider, [Hand()])
    assert (told[-1].reason, told[-1].calls) == ("done", 2)
    await act(session, provider, [Hand()], says="And?")
    assert valid(provider)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_gives_its_connection_back_before_tools_run(memory, stream):
    open_now: list[str] = []

    class Connected(ScriptedProvider):
        async def send(self, request):
            open_now.append("connection")
            try:
                async for event in super().send(request):
                    yield event
            finally:
                open_now.pop()

    async def gives(_):
        return f"{len(open_now)} open"

    session = await create(memory)
    provider = Connected("anthropic", [ScriptedCall(name="read"), "Done."])
    await act(session, provider, [Hand(gives=gives)], stream=stream)
    assert await texts(memory, "tool") == ["0 open"]


async def test_the_volatile_tail_rides_with_each_call_and_is_not_said(memory):
    session = await create(memory)
    provider = claude(ScriptedCall(name="read"), "Done.")
    await act(session, provider, [Hand()], volatile="It is noon.")
    assert all("It is noon." in words_in(each) for each in provider.requests)
    assert not any("noon" in words for words in await texts(memory, "user"))


async def test_every_call_has_its_outcome_and_no_result_is_invented(memory):
    session = await create(memory)
    provider = claude(
        [ScriptedCall(name="read"), ScriptedCall(name="nothing")],
        ScriptedCall(name="read"),
        "Done.",
    )
    await act(session, provider, [Hand()])
    calls = [event.seq async for event in memory.events("s") if isinstance(event.body, CallEvent)]
    assert [each.call for each in await found(memory, CallOutcome)] == calls
    assert not await found(memory, ToolResultRepair)


async def test_happenings_are_plain_values_to_those_who_stream_them_on(memory):
    session = await create(memory)
    provider = claude(
        ScriptedReply(text="Let me see.", calls=(ScriptedCall(name="read", id="c"),)), "Done."
    )
    told = [
        json.loads(json.dumps(turn_event_to_json(each)))
        for each in await act(session, provider, [Hand()])
    ]
    assert [each["type"] for each in told if each["type"] != "message.delta"] == [
        *("turn.started", "model_call.started", "model_call.finished", "message"),
        *("tool.started", "tool.finished"),
        *("model_call.started", "model_call.finished", "message", "turn.finished"),
    ]
    last = {"type": "turn.finished", "reason": "done", "calls": 2, "text": "Done."}
    assert told[-1].items() >= last.items()
    assert "message" not in told[-1]  # it is the event before
