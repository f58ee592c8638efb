"""`session.on_disconnect`: what becomes of a turn when the one who asked has gone."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from tests.http.houses import Held, house, until
from tests.http.test_talking import LOOK
from trimtab.core.event import Turn
from trimtab.testing import Call

pytestmark = pytest.mark.anyio

SESSION = "default/helper/one"
SCRIPT = (Call(name="look", arguments={}), "It rains.")


async def leave(served, provider):
    """Ask, and go while the model is writing its first reply."""
    async with aclosing(served.session().stream("How is the weather?", key="k1")) as events:
        async for event in events:
            if event.kind == "begin":
                break
    await provider.reached.wait()


async def ended(served) -> list[str]:
    return [
        event.body.state
        async for event in served.service.store.events(SESSION)
        if isinstance(event.body, Turn)
    ]


async def test_with_pause_the_turn_ends_after_its_step_and_goes_on_when_it_is_resumed():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK], session={"on_disconnect": "pause"}) as served:
        await leave(served, provider)
        turning = served.service._running[SESSION].turning
        await until(lambda: turning._stop)
        provider.go_on.set()
        await served.turns.idle()
        assert len(provider.requests) == 1
        assert (await ended(served))[-1] == "ended"
        told = [m.role async for m in served.session().history()]
        assert told == ["user", "assistant", "tool"]
        assert await served.session().resume()
        await served.turns.idle()
        assert [m.text async for m in served.session().history()][-1] == "It rains."


async def test_with_continue_the_turn_is_finished():
    provider = Held(*SCRIPT, after=2)
    how = {"on_disconnect": "continue"}
    async with house(provider=provider, tools=[LOOK], session=how) as served:
        await leave(served, provider)
        await until(lambda: not served.offer.tasks)
        provider.go_on.set()
        await served.turns.idle()
        assert len(provider.requests) == 2
        assert [m.text async for m in served.session().history()][-1] == "It rains."


async def test_whoever_only_follows_pauses_nothing():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK]) as served:
        session = served.session()
        await session.send("How is the weather?")
        await provider.reached.wait()
        async with aclosing(session.follow("0")) as events:
            await anext(events)
        provider.go_on.set()
        await served.turns.idle()
        assert [m.text async for m in session.history()][-1] == "It rains."


async def test_a_client_whose_connection_broke_lets_the_paused_turn_go_on():
    provider = Held(*SCRIPT, after=2)
    async with house(provider=provider, tools=[LOOK], session={"on_disconnect": "pause"}) as served:
        session, broken = served.session(), False
        pieces, kind = "", ""
        async for event in session.stream("How is the weather?"):
            if event.kind == "begin" and not broken:
                await provider.reached.wait()
                turning = served.service._running[SESSION].turning
                for connection in list(served.connections()):
                    connection.transport.abort()
                broken = True
                await until(lambda turning=turning: turning._stop)
                provider.go_on.set()
            pieces += event.data["text"] if event.kind == "piece" else ""
            kind = f"{event.kind} {event.data.get('why')}"
        assert kind == "end done"
        assert pieces == "It rains."
