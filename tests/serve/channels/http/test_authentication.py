"""Requests without a valid key: how many are answered, and that they slow nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from uvicorn.middleware.proxy_headers import _TrustedHosts

from tests.serve.channels.http.running_apps import house, problem
from trimtab_serve.api_keys import lookup
from trimtab_serve.api_keys.api_key import ApiKey
from trimtab_serve.api_keys.lookup import LOOKUP_INTERVAL_S, ApiKeyLookup
from trimtab_serve.channels.http.authentication import (
    WRONG_KEYS_PER_MINUTE,
    group_client_address,
)
from trimtab_serve.process.http_connections import ConnectionLimits
from trimtab_serve.process.http_server import list_forwarding_networks
from trimtab_serve.queue import rate_limit
from trimtab_serve.queue.rate_limit import CallerRateLimiter, compute_request_burst

pytestmark = pytest.mark.anyio

WHO = ({"key_name": "web", "tenant": "acme"}, {"key_name": "old", "expires": 1.0})


def wrong(number: int) -> dict[str, str]:
    return {"Authorization": f"Bearer tt_guess-{number}"} if number % 2 else {}


def from_address(url: str, address: str) -> httpx2.AsyncClient:
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    return httpx2.AsyncClient(base_url=url, transport=transport)


async def test_guesses_from_one_address_are_held_to_a_pace_and_valid_keys_are_not(caplog):
    async with (
        house(keys=True, who=WHO) as served,
        served.http() as http,
        served.http("web") as web,
    ):
        started = time.monotonic()
        for number in range(WRONG_KEYS_PER_MINUTE):
            problem(await http.get("/v1/agents", headers=wrong(number)), 401, "unauthorized")
        refilled = 0
        for number in range(20):
            answer = await http.get("/v1/agents", headers=wrong(number))
            if answer.status_code == 401:
                refilled += 1
                continue
            told = problem(answer, 429, "too-many-requests")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.headers["connection"] == "close"
            assert "guess" not in told["detail"]
            # The same address, as behind a NAT.
            assert (await web.get("/v1/agents")).status_code == 200
        per_s = WRONG_KEYS_PER_MINUTE / 60
        assert refilled <= (time.monotonic() - started) * per_s + 1
        assert (await http.get("/healthz")).status_code == 200
        async with from_address(served.url, "127.0.0.77") as other:
            problem(await other.get("/v1/agents"), 401, "unauthorized")
    assert "requests a minute without a valid key from 127.0.0.1" in caplog.text


async def test_a_valid_key_that_is_new_to_the_process_is_let_in_among_guesses_of_its_address():
    who = [{"key_name": f"app{number}"} for number in range(40)]
    async with house(keys=True, who=who) as served, served.http() as http:
        guess = lambda number: http.get(  # noqa: E731 - one request
            "/v1/agents", headers={"Authorization": f"Bearer tt_guess-{number}"}
        )
        guesses = await asyncio.gather(*map(guess, range(200)))
        assert guesses[-1].status_code == 429
        more_guesses = asyncio.gather(*map(guess, range(200, 400)))
        statuses: list[int] = []
        for name in served.keys:
            headers = {"Authorization": f"Bearer {served.keys[name]}"}
            statuses.append((await http.get("/v1/agents", headers=headers)).status_code)
        assert statuses == [200] * 40
        await more_guesses


async def test_callers_behind_a_trusted_proxy_on_another_machine_are_told_apart():
    limits = ConnectionLimits(total=99, per_address=99, trusted_proxies=("127.0.0.77",))
    async with house(keys=True, who=WHO, limits=limits) as served:
        statuses: dict[tuple[str, str], int] = {}
        for proxy in ("127.0.0.77", "127.0.0.78"):
            async with from_address(served.url, proxy) as http:
                for number in range(WRONG_KEYS_PER_MINUTE + 2):
                    forwarded = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}
                    await http.get("/v1/agents", headers=wrong(number) | forwarded)
                for caller in ("203.0.113.9", "203.0.113.10"):
                    answer = await http.get("/v1/agents", headers={"X-Forwarded-For": caller})
                    statuses[proxy, caller] = answer.status_code
        # The header of another machine does not count: all that it sends is from its own address.
        assert statuses == {
            ("127.0.0.77", "203.0.113.9"): 429,
            ("127.0.0.77", "203.0.113.10"): 401,
            ("127.0.0.78", "203.0.113.9"): 429,
            ("127.0.0.78", "203.0.113.10"): 429,
        }


@pytest.mark.parametrize(
    ("peer", "is_trusted"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", True),
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.1", False),
        ("::ffff:10.2.0.1", False),
        ("2001:db8::9", True),
    ],
)
def test_a_proxy_is_known_by_its_address_or_network_also_on_a_listener_of_ipv6(peer, is_trusted):
    networks = list_forwarding_networks(["10.0.0.7", "10.1.0.0/16", "2001:db8::/32"])
    assert (peer in _TrustedHosts(networks)) is is_trusted


async def test_guesses_that_come_at_once_share_their_lookups(monkeypatch):
    async with house(keys=True, who=WHO) as served:
        batches: list[list[bytes]] = []
        find_many = served.api_keys.find_many
        first_query_began = asyncio.Event()
        first_query_may_end = asyncio.Event()

        async def find(hashes: Sequence[bytes]):
            batches.append([*hashes])
            first_query_began.set()
            await first_query_may_end.wait()
            return await find_many(hashes)

        monkeypatch.setattr(served.api_keys, "find_many", find)
        monkeypatch.setattr(lookup, "LOOKUP_INTERVAL_S", 0.0)
        authentication = served.offer.authentication
        requests = [
            asyncio.create_task(
                authentication.authenticate({"authorization": f"Bearer {key}"}, "192.0.2.7")
            )
            for key in ("tt_first", *(f"tt_guess-{n}" for n in range(100)), served.keys["web"])
        ]
        await first_query_began.wait()
        requests[1].cancel()  # its caller has gone; the query of the others goes on
        first_query_may_end.set()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert answers[-1].name == "web"
        assert len(batches) <= 2
        assert sum(map(len, batches)) == 102


async def test_lookups_of_unknown_keys_have_a_pace_for_the_whole_process(monkeypatch):
    starts: list[float] = []

    class Keys:
        async def find_many(self, hashes: Sequence[bytes]) -> dict[bytes, ApiKey]:
            starts.append(time.monotonic())
            return {}

    keys: Any = Keys()
    unknown_keys = ApiKeyLookup(keys)
    for number in range(4):
        assert await unknown_keys.find(b"%d" % number) is None
    pauses = [later - start for start, later in pairwise(starts)]
    assert min(pauses) >= LOOKUP_INTERVAL_S - 0.001


async def test_a_caller_beyond_its_pace_costs_no_lookup(monkeypatch):
    serve = {"requests_per_minute": 60}
    async with house(keys=True, who=WHO, serve=serve) as served:
        for name in ("web", "old"):
            async with served.http(name) as http:
                while (await http.get("/v1/agents")).status_code != 429:
                    pass
                with monkeypatch.context() as patched:
                    patched.setattr(served.api_keys, "find_many", None)
                    problem(await http.get("/v1/agents"), 429, "too-many-requests")


async def test_an_expired_key_has_a_pace_of_its_own():
    who = [*WHO, {"key_name": "gone", "expires": 1.0}]
    serve = {"requests_per_minute": 60}
    async with house(keys=True, who=who, serve=serve) as served:
        async with served.http() as http:
            for number in range(WRONG_KEYS_PER_MINUTE + 1):
                await http.get("/v1/agents", headers=wrong(number))
        async with served.http("old") as http:
            for _ in range(compute_request_burst(60)):
                # Who has it still learns why it is refused, whatever others guess.
                answer = await http.get("/v1/agents")
                assert "key old expired" in problem(answer, 401, "unauthorized")["detail"]
            problem(await http.get("/v1/agents"), 429, "too-many-requests")
        async with served.http("gone") as http:
            problem(await http.get("/v1/agents"), 401, "unauthorized")


async def test_a_refusal_for_the_pace_of_a_key_says_how_large_a_burst_may_be():
    serve = {"requests_per_minute": 120}
    async with (
        house(keys=True, who=WHO, serve=serve) as served,
        served.http("web") as http,
    ):
        begun, answers = time.monotonic(), []
        while not answers or answers[-1].status_code == 200:
            answers.append(await http.get("/v1/agents"))
        refilled = (time.monotonic() - begun) * 2
        assert 20 <= len(answers) - 1 <= 20 + refilled + 1
        told = problem(answers[-1], 429, "too-many-requests")
        assert (told["requests_per_minute"], told["burst"]) == (120, 20)
        assert "120 requests a minute, 20 at once" in told["detail"]
        # What the key may not do, and what is not there, counts as well.
        problem(await http.get("/nowhere"), 429, "too-many-requests")


def test_a_burst_is_a_sixth_of_a_minute_and_ten_at_least():
    assert [compute_request_burst(rate) for rate in (1, 60, 600, 6_000)] == [10, 10, 100, 1_000]


def test_addresses_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_BUCKETS", 100)
    limiter = CallerRateLimiter(20, lambda: 0.0, burst=20)
    for number in range(10_000):
        limiter.take_or_retry_after_s(f"10.0.{number // 256}.{number % 256}")
    assert len(limiter._buckets) == 100


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::99", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("not:an:address", "not:an:address"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(host, group):
    assert group_client_address(host) == group


async def test_metrics_are_read_without_keys_however_busy_the_others_are():
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    async with (
        house(serve={"requests_per_minute": 1}, render_metrics=render) as served,
        served.http() as http,
    ):
        while (await http.get("/v1/agents")).status_code == 200:
            pass
        assert (await http.get("/metrics")).status_code == 200
