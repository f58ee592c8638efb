"""What a turn writes together: few appends, and nothing is done before it is recorded."""

import pytest

from tests.session.failing_stores import Wrapped
from tests.session.turns.sessions import Hand, act, create, found, log, reopened, say, texts
from trimtab.engine.log.event import CallOutcome, Event, MessageAdded, ModelCall, TurnProgressRecord
from trimtab.session.turn import TurnHooks, run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio


def name_of(event: Event) -> str:
    match event.body:
        case MessageAdded(message=message):
            return message.role
        case ModelCall():
            return "call"
        case CallOutcome():
            return "outcome"
        case TurnProgressRecord(state=state):
            return state
        case _:
            return type(event.body).__name__


class Recording(Wrapped):
    """Knows what was appended together."""

    def __init__(self, store):
        super().__init__(store)
        self.appends: list[list[str]] = []

    async def append(self, session, events, *, epoch=None):
        await super().append(session, events, epoch=epoch)
        self.appends.append([name_of(event) for event in events])


async def test_a_turn_is_claimed_with_its_message_and_ended_with_its_last_reply(memory):
    store, hand = Recording(memory), Hand()
    session = await create(store, tools=[hand.tool.definition])
    store.appends.clear()
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "Done."])
    await run_turn(session, provider, [hand.tool], message=say(), key="k")
    assert store.appends == [
        ["user", "claimed"],
        ["call"],
        ["outcome", "assistant"],
        ["tool_started"],
        ["tool"],
        ["call"],
        ["outcome", "assistant", "ended"],
    ]
    assert session.recorder.epoch is None


async def test_with_a_step_between_requests_the_end_is_recorded_behind_it(memory):
    store = Recording(memory)
    session = await create(store)

    async def between():
        return True

    await act(
        session, ScriptedProvider("anthropic", ["Done."]), hooks=TurnHooks(before_request=between)
    )
    assert store.appends[-2:] == [["outcome", "assistant"], ["ended"]]


async def test_a_reply_during_which_somebody_wrote_does_not_end_the_turn(memory):
    store = Recording(memory)
    session = await create(store)

    provider = ScriptedProvider("anthropic", ["First.", "Second."])
    sending = provider.send

    async def send(request):
        if len(provider.requests) == 0:
            await reopened_says(memory)
        async for event in sending(request):
            yield event

    provider.send = send
    await act(session, provider)
    assert await texts(memory, "assistant") == ["First.", "Second."]
    assert [each[-1] for each in store.appends].count("ended") == 1


async def reopened_says(store):
    """Somebody writes while the model does."""
    await (await reopened(store)).add(say("And this."))


async def test_a_message_that_is_in_the_log_is_not_added_again_with_a_claim(memory):
    session = await create(memory)
    await session.add(say(), key="k")
    await session.recorder.checkpoint()  # its window no longer knows the key
    assert await session.recorder.claim(say(), key="k") == 1
    assert await texts(memory, "user") == ["Go."]


async def test_a_message_that_another_process_was_faster_with_is_seen_behind_the_claim(memory):
    session = await create(memory)
    await (await reopened(memory)).add(say(), key="k")
    assert await session.recorder.claim(say(), key="k") == 1
    assert len(session.window.entries) == 1
    assert [name_of_body(body) for body in await log(memory)][-2:] == ["user", "claimed"]


def name_of_body(body) -> str:
    return name_of(Event(seq=1, at=0.0, body=body))


async def test_a_message_and_its_claim_are_written_again_where_somebody_else_was_faster(memory):
    session = await create(memory)
    await (await reopened(memory)).add(say("Before."), key="other")
    assert await session.recorder.claim(say(), key="k") == 1
    assert await texts(memory, "user") == ["Before.", "Go."]
    assert len(await found(memory, TurnProgressRecord)) == 1


class Overtaken(Wrapped):
    """Another process adds the same reply just before this one does."""

    was_overtaken = False

    async def append(self, session, events, *, epoch=None):
        if any(name_of(event) == "assistant" for event in events) and not self.was_overtaken:
            self.was_overtaken = True
            other = await reopened(self.inner)
            await other.add(REPLY)
        await self.inner.append(session, events, epoch=epoch)


REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 50, "output_tokens": 2},
}


async def test_a_turn_is_not_reported_as_ended_by_a_reply_that_another_process_added(memory):
    session = await create(Overtaken(memory))
    await session.recorder.claim(say())
    await session.request()
    assert not await session.recorder.add_reply(REPLY, ends_turn=lambda _: True)
    assert session.recorder.epoch == 1
    assert await texts(memory, "assistant") == ["Done."]
