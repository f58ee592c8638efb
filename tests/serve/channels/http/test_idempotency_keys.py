"""The same idempotency key with another message is refused, whatever has become of the first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.channels.http.running_apps import MESSAGES, Held, House, house, problem, until
from tests.serve.queue import queues
from tests.serve.queue.postgres import databases
from tests.serve.service.served_agents import inbound
from trimtab.testing import ScriptedProvider
from trimtab_serve.channels.http.message_keys import to_stored_key

pytestmark = pytest.mark.anyio

SESSION = "default/helper/one"
KIND = "idempotency-key-reused"


@pytest.fixture(params=[*queues.NAMES, pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request, tmp_path):
    if request.param != "postgres":
        with queues.made(request.param, tmp_path) as made:
            yield made
        return
    yield databases.Postgres(request.getfixturevalue("database"))


@pytest.fixture
async def stored(place):
    """A store and a queue of each kind."""
    store, queue = await place.open()
    yield {"store": store, "queue": queue}
    for each in (queue, store):
        if close := getattr(each, "close", None):
            await close()


async def refuse(http: Any, text: str, key: str = "k1") -> None:
    """As JSON and as a stream."""
    for accept in ("application/json", "text/event-stream"):
        headers = {"Idempotency-Key": key, "Accept": accept}
        told = problem(await http.post(MESSAGES, json={"text": text}, headers=headers), 422, KIND)
        assert f"another message already has the key {key}" in told["detail"]
    problem(await http.post(MESSAGES, json={"text": text, "key": key}), 422, KIND)


async def run_turn(served: House) -> None:
    """On PostgreSQL a worker would; here it is told to."""
    served.turns.request_turn(SESSION)
    await until(lambda: served.provider.requests)
    await served.turns.wait_until_idle()


async def test_after_the_first_was_answered(stored):
    async with house("Hello.", **stored) as served, served.http() as http:
        session = served.session()
        await session.send("Hi.", key="k1")
        await run_turn(served)
        await refuse(http, "Something else.")
        assert (await session.send("Hi.", key="k1")).duplicate
        assert await session.ask("Hi.", key="k1") == "Hello."
        assert [m.text async for m in session.history()] == ["Hi.", "Hello."]


async def test_while_the_first_waits_behind_more_than_a_hundred(stored):
    async with house("Hello.", **stored) as served, served.http() as http:
        served.leave_unanswered()
        for number in range(101):
            message = inbound("Hi.", key=to_stored_key(f"k{number}"))
            assert await stored["queue"].post(message)
        await refuse(http, "Something else.", key="k100")
        assert (await served.session().send("Hi.", key="k100")).duplicate


@pytest.mark.parametrize(
    "key", ["schedule/default/helper/tick/1794958320", "telegram:7:4242:500", "discord:99"]
)
async def test_a_caller_cannot_take_the_key_of_a_chat_or_of_a_schedule(stored, key):
    async with house("Hello.", **stored) as served:
        served.leave_unanswered()
        accepted = await served.session().send("Mine.", key=key)
        assert (accepted.key, accepted.duplicate) == (key, False)
        assert await served.service.post(inbound("Stop the transfer!", key=key))
        texts = [
            part.text
            for each in await stored["queue"].pending(SESSION)
            for part in each.message.parts
        ]
        assert texts == ["Mine.", "Stop the transfer!"]


async def test_while_the_first_waits(stored):
    async with house("Hello.", **stored) as served, served.http() as http:
        served.leave_unanswered()
        session = served.session()
        await session.send("Hi.", key="k1")
        await refuse(http, "Something else.")
        assert (await session.send("Hi.", key="k1")).duplicate
        (waiting,) = await served.service.queue.pending(SESSION)
        assert waiting.message.parts[0].text == "Hi."  # type: ignore[union-attr]


async def test_while_the_first_is_being_answered(stored):
    model = Held("Hello.", after=2)
    async with house(provider=model, **stored) as served, served.http() as http:
        await served.session().send("Hi.", key="k1")
        served.turns.request_turn(SESSION)
        await model.reached.wait()
        await refuse(http, "Something else.")
        model.go_on.set()
        await served.turns.wait_until_idle()
        assert [m.text async for m in served.session().history()] == ["Hi.", "Hello."]


async def test_after_the_first_was_given_up(stored):
    async with house("Hello.", **stored) as served, served.http() as http:
        served.leave_unanswered()
        await served.session().send("Hi.", key="k1")
        await queues.give_up(served.service.queue, SESSION)
        await refuse(http, "Something else.")


async def test_of_what_was_redacted_the_rest_is_compared():
    model = ScriptedProvider("anthropic", ["Hello."])
    async with (
        house(provider=model, session={"redact": ["email"]}) as served,
        served.http() as http,
    ):
        session = served.session()
        assert await session.ask("I am a@example.com.", key="k1") == "Hello."
        assert (await session.send("I am a@example.com.", key="k1")).duplicate
        await refuse(http, "I was a@example.com.")


async def test_two_sessions_may_use_one_key():
    async with house("Hello.", "Hello.") as served:
        assert await served.session("one").ask("Hi.", key="k1") == "Hello."
        assert await served.session("two").ask("Something else.", key="k1") == "Hello."
