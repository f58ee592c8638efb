"""`session.on_disconnect`: what becomes of a turn when the one who asked has gone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.serve.channels.http.running_apps import MESSAGES, Held, house, until
from tests.serve.channels.http.test_messages import LOOK
from tests.serve.queue.queues import give_up
from trimtab.engine.log.event import TurnProgressRecord
from trimtab.session.tools import ToolInvocation
from trimtab.testing import ScriptedCall

pytestmark = pytest.mark.anyio

SESSION = "default/helper/one"
SCRIPT = (ScriptedCall(name="look", arguments={}), "It rains.")


async def leave(served, provider):
    """Ask, and go while the model is writing its first reply."""
    async with aclosing(served.session().stream("How is the weather?", key="k1")) as events:
        async for event in events:
            if event.kind == "turn.started":
                break
    await provider.reached.wait()


async def ended(served) -> list[str]:
    return [
        event.body.state
        async for event in served.service.store.events(SESSION)
        if isinstance(event.body, TurnProgressRecord)
    ]


async def test_with_pause_the_turn_ends_after_its_step_and_goes_on_when_it_is_resumed():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK], session={"on_disconnect": "pause"}) as served:
        await leave(served, provider)
        turning = served.service._running[SESSION].served_turn
        await until(lambda: turning._pause_requested)
        provider.go_on.set()
        await served.turns.wait_until_idle()
        assert len(provider.requests) == 1
        assert (await ended(served))[-1] == "ended"
        told = [m.role async for m in served.session().history()]
        assert told == ["user", "assistant", "tool"]
        assert await served.session().resume()
        await served.turns.wait_until_idle()
        assert [m.text async for m in served.session().history()][-1] == "It rains."


async def test_with_continue_the_turn_is_finished():
    provider = Held(*SCRIPT, after=2)
    how = {"on_disconnect": "continue"}
    async with house(provider=provider, tools=[LOOK], session=how) as served:
        await leave(served, provider)
        await until(lambda: not served.offer.background_tasks)
        provider.go_on.set()
        await served.turns.wait_until_idle()
        assert len(provider.requests) == 2
        assert [m.text async for m in served.session().history()][-1] == "It rains."


async def test_whoever_only_follows_pauses_nothing():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK]) as served:
        session = served.session()
        await session.send("How is the weather?")
        await provider.reached.wait()
        async with aclosing(session.follow_events("0")) as events:
            await anext(events)
        provider.go_on.set()
        await served.turns.wait_until_idle()
        assert [m.text async for m in session.history()][-1] == "It rains."


async def test_a_client_whose_connection_broke_lets_the_paused_turn_go_on():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK], session={"on_disconnect": "pause"}) as served:
        session, broken = served.session(), False
        pieces, kind = "", ""
        async for event in session.stream("How is the weather?"):
            if event.kind == "turn.started" and not broken:
                await provider.reached.wait()
                turning = served.service._running[SESSION].served_turn
                for connection in list(served.connections()):
                    connection.transport.abort()
                broken = True
                await until(lambda turning=turning: turning._pause_requested)
                provider.go_on.set()
            pieces += event.data["text"] if event.kind == "message.delta" else ""
            kind = f"{event.kind} {event.data.get('reason')}"
        assert kind == "turn.finished done"
        assert pieces == "It rains."


async def test_a_reader_who_leaves_pauses_his_own_turn_and_nobody_elses():
    """The second message waits behind the first one's turn, whose reader is there."""
    provider = Held(SCRIPT[0], "One.", ScriptedCall(name="wait", arguments={}), "Two.", after=2)
    how = {"on_disconnect": "pause", "on_message": "queue"}

    async def wait(_: ToolInvocation) -> str:
        await until(lambda: served.service._running[SESSION].served_turn._pause_requested)
        return "Stopped."

    tools = [LOOK, replace(LOOK, definition={**LOOK.definition, "name": "wait"}, run=wait)]
    async with house(provider=provider, tools=tools, session=how) as served, served.http() as http:
        first = asyncio.create_task(served.session().ask("First?"))
        await provider.reached.wait()
        headers = {"Accept": "text/event-stream"}
        async with http.stream("POST", MESSAGES, json={"text": "Second?"}, headers=headers):
            pass
        looks = counted(served.service.queue, "find_waiting")
        await until(lambda: len(looks) >= 2)
        assert not served.service._running[SESSION].served_turn._pause_requested
        provider.go_on.set()
        assert await first == "One."
        await served.turns.wait_until_idle()
        told = [(m.role, m.text) async for m in served.session().history()]
        assert told[-3:] == [("user", "Second?"), ("assistant", ""), ("tool", "")]
        assert len(provider.requests) == 3
        await until(lambda: not served.offer.background_tasks)


def counted(owner, name):
    """What a method is asked from now on."""
    asked, method = [], getattr(owner, name)

    async def counting(*which, **named):
        asked.append(which)
        return await method(*which, **named)

    setattr(owner, name, counting)
    return asked


async def come_and_go(served, key):
    """Come back to the answer of a message, behind all that there is, and leave."""
    store = served.service.store
    place, looks = await store.position(SESSION), counted(store, "find_key")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(place)}
    body = {"text": "How is the weather?", "key": key}
    async with served.http() as http, http.stream("POST", MESSAGES, json=body, headers=headers):
        pass
    await until(lambda: len(looks) == 2 and not served.offer.background_tasks)


async def test_a_reader_of_what_was_answered_pauses_nobodys_turn():
    provider = Held("It rains.", *SCRIPT, after=2)
    provider.go_on.set()
    async with house(provider=provider, tools=[LOOK]) as served:
        await served.session().ask("How is the weather?", key="k1")
        provider.reached.clear()
        provider.go_on.clear()
        second = asyncio.create_task(served.session().ask("And now?"))
        await provider.reached.wait()
        await come_and_go(served, "k1")
        provider.go_on.set()
        assert await second == "It rains."


async def test_a_turn_that_was_resumed_is_paused_again():
    provider = Held(SCRIPT[0], *SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK]) as served:
        await leave(served, provider)
        turning = served.service._running[SESSION].served_turn
        await until(lambda: turning._pause_requested)
        provider.go_on.set()
        await served.turns.wait_until_idle()
        provider.reached.clear()
        provider.go_on.clear()
        assert await served.session().resume()
        await provider.reached.wait()
        await come_and_go(served, "k1")
        provider.go_on.set()
        await served.turns.wait_until_idle()
        assert len(provider.requests) == 2


async def test_nobody_waits_to_pause_a_turn_that_was_given_up():
    async with house() as served, served.http() as http:
        served.leave_unanswered()
        headers = {"Accept": "text/event-stream"}
        async with http.stream("POST", MESSAGES, json={"text": "First?"}, headers=headers):
            pass
        await until(lambda: served.offer.background_tasks)
        await give_up(served.service.queue, SESSION)
        await until(lambda: not served.offer.background_tasks)


async def test_a_turn_is_resumed_though_the_queue_has_yet_to_hear_that_it_was_stopped():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK]) as served:
        queue, session = served.service.queue, served.session()
        finish, reached, go_on = queue.finish_turn, asyncio.Event(), asyncio.Event()

        async def slow_finish(*args: Any) -> None:
            reached.set()
            await go_on.wait()
            await finish(*args)

        queue.finish_turn = slow_finish  # pyright: ignore[reportAttributeAccessIssue]
        await leave(served, provider)
        await session.stop()
        await reached.wait()
        resumed = asyncio.create_task(session.resume())
        await asyncio.sleep(0.1)
        provider.go_on.set()
        go_on.set()
        assert await resumed
        await served.turns.wait_until_idle()
        assert [m.text async for m in session.history()][-1] == "It rains."
