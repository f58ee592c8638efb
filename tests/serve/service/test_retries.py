"""How long a turn is retried, and what becomes of messages while a provider is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.serve.service.served_agents import SESSION, agent, inbound, served
from trimtab.engine.log.event import TurnProgressRecord
from trimtab.errors import ProviderError, ProviderFailureDetails, ProviderPaused
from trimtab.providers import circuit_breaker
from trimtab.providers.circuit_breaker import CircuitBreakers, with_circuit_breaker
from trimtab.testing import ScriptedProvider
from trimtab_serve.service import retries
from trimtab_serve.service.retries import APOLOGY_TEXT, MAX_TURN_RETRY_S, TurnRetries
from trimtab_serve.service.waiting_notice import WAITING_TEXT

HOUR = 3600.0
TRANSIENT = ["rate_limit", "overloaded", "server", "network", "timeout"]


def failure(kind: Any, **more: Any) -> ProviderFailureDetails:
    return ProviderFailureDetails(kind=kind, message="no", **more)


@pytest.mark.parametrize("kind", [*TRANSIENT, "auth"])
def test_what_may_pass_is_retried_for_hours_with_growing_waits_of_minutes(kind):
    now = [0.0]
    attempts = TurnRetries(retry_for_s=6 * HOUR, clock=lambda: now[0])
    waits: list[float] = []
    while (wait := attempts.delay_after(ProviderError(failure(kind)))) is not None:
        waits.append(wait)
        now[0] += wait
    assert 6 * HOUR <= now[0] <= 6 * HOUR + MAX_TURN_RETRY_S
    assert waits[0] <= 1
    assert all(60 <= wait <= MAX_TURN_RETRY_S for wait in waits[10:])
    assert len(waits) < 250


@pytest.mark.parametrize("kind", ["refused", "malformed", "overflow", "rejected"])
def test_what_can_never_work_is_not_retried(kind):
    assert TurnRetries().delay_after(ProviderError(failure(kind))) is None


def test_the_wait_that_the_provider_asks_for_is_kept():
    asks = ProviderError(failure("rate_limit", retry_after=90.0))
    assert TurnRetries().delay_after(asks) == 90.0


def test_while_the_circuit_is_open_a_session_looks_again_within_a_minute_and_uses_no_attempt():
    attempts = TurnRetries(20)
    waits = {
        attempts.delay_after(ProviderPaused(failure("server", retry_after=30.0))) for _ in range(50)
    }
    assert all(wait is not None and 30 <= wait <= 50 for wait in waits)
    assert len(waits) > 1
    assert attempts.attempts == 20


@pytest.mark.anyio
async def test_after_its_time_the_turn_is_given_up_with_an_apology(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.001)
    house = served(*[failure("server", status=500)] * 5_000, runs={"retry_for_s": 0.2})
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == [APOLOGY_TEXT]
    (dead,) = await house.service.queue.list_dead_letters()
    assert dead.session == SESSION


@pytest.mark.anyio
@pytest.mark.parametrize("written_before", [False, True])
async def test_those_who_wait_in_a_chat_are_told_once_that_the_provider_is_away(
    monkeypatch, written_before
):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.01)
    monkeypatch.setattr(retries, "MAX_TURN_RETRY_S", 0.05)
    monkeypatch.setattr(retries, "WAITING_NOTICE_AFTER_S", 0.05)
    script: list[Any] = [failure("network")] * 12 + ["Fine."]
    house = served(*(["Hello."] if written_before else []), *script)
    if written_before:
        await house.say("Hi.", key="0")
        await house.turns.wait_until_idle()
    await house.say("One.", key="a")
    await house.say("Two.", key="b")
    await house.turns.wait_until_idle()
    sent = [reply.text for reply in await house.sent()]
    assert sent[-2:] == [WAITING_TEXT, "Fine."]
    assert sent.count(WAITING_TEXT) == 1


def test_a_notice_is_due_after_a_minute_and_not_for_hours():
    now = [0.0]
    attempts = TurnRetries(clock=lambda: now[0])
    assert not attempts.is_waiting_notice_due
    attempts.delay_after(ProviderError(failure("network")))
    due: list[float] = []
    for now[0] in range(0, int(3 * HOUR), 30):
        if attempts.is_waiting_notice_due:
            due.append(now[0])
    assert due[0] == 60
    assert due[-1] - due[0] >= MAX_TURN_RETRY_S, "an attempt falls into it"
    assert due[-1] < 0.5 * HOUR


@pytest.mark.anyio
async def test_messages_wait_while_the_provider_is_away_and_go_out_in_order_when_it_is_back(
    monkeypatch,
):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.01)
    monkeypatch.setattr(retries, "PAUSED_JITTER_S", 0.05)
    monkeypatch.setattr(circuit_breaker, "FIRST_PROBE_S", 1.0)
    monkeypatch.setattr(circuit_breaker, "PROBE_RUNNING_S", 0.05)
    house = served()
    script = [*[failure("network")] * 7, *["Fine."] * 30]
    inner, breakers = ScriptedProvider("anthropic", script), CircuitBreakers()
    guarded = with_circuit_breaker(inner, breakers.get("anthropic", None, None))
    one = agent(guarded, house.service.store)
    one.breakers = breakers
    house.service.agents = {"helper": one}
    sessions = [f"default/helper/s{n}" for n in range(10)]
    for session in sessions:
        for text in ("one", "two"):
            await house.service.post(inbound(text, key=text, session=session))
    async with asyncio.timeout(120):
        while await house.turns.count_waiting_retries() < len(sessions):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert one.breaker is not None
    assert one.breaker.is_open
    assert len(inner.requests) < 10, "an open circuit lets no calls through"
    written = await house.service.store.position(sessions[-1])
    for session in sessions:
        await house.service.post(inbound("three", key="three", session=session))
    await asyncio.sleep(0.2)
    assert await house.service.store.position(sessions[-1]) == written, "a look writes nothing"
    async with asyncio.timeout(180):
        await house.turns.wait_until_idle()
    for session in sessions:
        said = [text for role, text in await house.texts(session) if role == "user"]
        assert said == ["one", "two", "three"]
    assert await house.service.queue.depth() == 0
    assert await house.service.queue.list_dead_letters() == []
    assert await house.turns.count_waiting_retries() == 0
    claims = [
        event
        async for event in house.service.store.events(sessions[-1])
        if isinstance(event.body, TurnProgressRecord)
    ]
    # Each attempt that was made has a beginning and perhaps an end; looks have none.
    assert len(claims) <= 2 * 8


@pytest.mark.anyio
async def test_neither_a_dead_letter_nor_the_log_repeats_a_secret(monkeypatch, caplog):
    value = "k3y-of-the-operator-0123456789"
    monkeypatch.setenv("SOME_TOKEN", value)
    house = served()
    await house.service.post(inbound("Hi.", key="a"))
    error = RuntimeError(f"refused {value}")
    retries.log_turn_retry(SESSION, 1.0, error)
    assert await TurnRetries().dead_letter(house.service.queue, SESSION, error, None)
    reason = await house.service.queue.dead_letter_reason(SESSION)
    assert reason == "RuntimeError: refused …"
    assert value not in caplog.text
