"""A provider that fails again and again is left alone, and found again by itself."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from trimtab.errors import ProviderError, ProviderFailureDetails, ProviderPaused
from trimtab.providers.circuit_breaker import (
    FAILURES_TO_OPEN,
    CircuitBreaker,
    CircuitBreakers,
    with_circuit_breaker,
)
from trimtab.providers.retries import with_retries
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

DOWN = ProviderFailureDetails(kind="server", message="down", status=500)
NO_KEY = ProviderFailureDetails(kind="auth", message="no such key", status=401)
BAD = ProviderFailureDetails(kind="refused", message="bad request", status=400)
REQUEST = {
    "stream": True,
    "model": "claude-sonnet-4-5",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": "hello"}],
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guarded(*script):
    clock = Clock()
    inner = ScriptedProvider("anthropic", script)
    breaker = CircuitBreaker("p", clock=clock)
    return clock, inner, breaker, with_circuit_breaker(inner, breaker)


async def call(provider):
    async with aclosing(provider.send(REQUEST)) as events:
        return [event async for event in events]


async def fail(provider, times, error=ProviderError):
    for _ in range(times):
        with pytest.raises(error):
            await call(provider)


async def test_after_failures_in_a_row_nothing_is_sent_but_one_probe_at_a_time():
    clock, inner, breaker, provider = guarded(*[DOWN] * 20)
    await fail(provider, FAILURES_TO_OPEN)
    assert breaker.is_open
    sent = len(inner.requests)
    await fail(provider, 50, ProviderPaused)
    assert len(inner.requests) == sent
    for _ in range(3):
        wait = breaker.seconds_until_probe()
        assert wait is not None
        assert wait <= 30
        clock.now += wait
        sent = len(inner.requests)
        await fail(provider, 1)
        await fail(provider, 5, ProviderPaused)
        assert len(inner.requests) == sent + 1


async def test_it_closes_by_itself_when_a_probe_is_answered():
    clock, _, breaker, provider = guarded(*[DOWN] * FAILURES_TO_OPEN, "Back.", "Again.")
    await fail(provider, FAILURES_TO_OPEN)
    clock.now += breaker.seconds_until_probe() or 0
    await call(provider)
    assert not breaker.is_open
    await call(provider)


async def test_while_a_probe_runs_no_other_is_sent():
    clock, inner, breaker, provider = guarded(*[DOWN] * FAILURES_TO_OPEN, "Back.", "No.")
    await fail(provider, FAILURES_TO_OPEN)
    clock.now += breaker.seconds_until_probe() or 0
    go, plain = asyncio.Event(), inner.send

    async def slow(request):
        await go.wait()
        async for event in plain(request):
            yield event

    inner.send = slow
    probe = asyncio.ensure_future(call(provider))
    await asyncio.sleep(0)
    await fail(provider, 3, ProviderPaused)
    go.set()
    await probe
    assert not breaker.is_open


async def test_a_probe_that_is_cancelled_does_not_hold_back_the_next():
    clock, inner, breaker, provider = guarded(*[DOWN] * FAILURES_TO_OPEN, "Back.")
    await fail(provider, FAILURES_TO_OPEN)
    clock.now += breaker.seconds_until_probe() or 0
    plain = inner.send

    async def forever(request):
        await asyncio.Event().wait()
        yield {}

    inner.send = forever
    probe = asyncio.ensure_future(call(provider))
    await asyncio.sleep(0)
    probe.cancel()
    await asyncio.wait([probe])
    inner.send = plain
    await call(provider)
    assert not breaker.is_open


async def test_failures_that_are_not_in_a_row_or_are_the_requests_own_do_not_open_it():
    _, _, breaker, provider = guarded(
        *[DOWN] * (FAILURES_TO_OPEN - 1), "Fine.", *[DOWN] * (FAILURES_TO_OPEN - 1), *[BAD] * 9
    )
    await fail(provider, FAILURES_TO_OPEN - 1)
    await call(provider)
    await fail(provider, FAILURES_TO_OPEN - 1 + 9)
    assert not breaker.is_open


async def test_a_key_that_is_not_accepted_opens_it_at_once():
    _, inner, _, provider = guarded(NO_KEY, "Fine.")
    await fail(provider, 1)
    await fail(provider, 1, ProviderPaused)
    assert len(inner.requests) == 1


async def test_the_wait_that_the_provider_asks_for_is_kept():
    asks = ProviderFailureDetails(kind="rate_limit", message="slow", status=429, retry_after=120)
    clock, _, breaker, provider = guarded(*[asks] * FAILURES_TO_OPEN)
    await fail(provider, FAILURES_TO_OPEN)
    clock.now += 119
    assert breaker.seconds_until_probe() == pytest.approx(1)


async def test_retries_end_where_the_circuit_opens():
    _, inner, _, provider = guarded(*[DOWN] * 50)
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    retried = with_retries(provider, max_attempts=20, sleep=note)
    with pytest.raises(ProviderPaused, match="down"):
        await call(retried)
    assert len(inner.requests) == FAILURES_TO_OPEN


def test_providers_keys_and_addresses_have_breakers_of_their_own_and_no_name_holds_a_secret():
    made = CircuitBreakers()
    one = made.get("openai", "https://user:SECRET@api.example.com:8443/v1?k=SECRET", "sk-SECRET")
    assert one.name == "openai at api.example.com:8443"
    same = made.get("openai", "https://api.example.com:8443/other", "sk-SECRET")
    assert same is one
    assert made.get("openai", "https://api.example.com:8443/v1", "sk-OTHER") is not one
    assert made.get("openai", None, "sk-SECRET").name == "openai"


async def test_a_provider_that_refuses_a_request_is_back():
    clock, _, breaker, provider = guarded(*[DOWN] * FAILURES_TO_OPEN, BAD)
    await fail(provider, FAILURES_TO_OPEN)
    assert breaker.is_open
    clock.now += 60
    await fail(provider, 1)
    assert not breaker.is_open
