"""One tenant's requests leave room for those of others."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.serve.channels.http.running_apps import house
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.server_state import MAX_READS, TenantRequests

pytestmark = pytest.mark.anyio


async def test_reads_of_one_tenant_wait_for_each_other_and_those_of_another_do_not():
    requests, reading = TenantRequests(None), list[str]()
    done = asyncio.Event()

    async def read(tenant: str) -> None:
        async with requests.hold_read(tenant):
            reading.append(tenant)
            await done.wait()

    tasks = [asyncio.create_task(read("mallory")) for _ in range(20)]
    tasks.append(asyncio.create_task(read("alice")))
    await asyncio.sleep(0.01)
    assert sorted(reading) == ["alice", *["mallory"] * MAX_READS]
    done.set()
    await asyncio.gather(*tasks)
    assert len(reading) == 21


async def test_a_read_that_fails_or_is_cancelled_frees_its_place():
    requests = TenantRequests(None)
    for _ in range(2 * MAX_READS):
        with pytest.raises(ValueError, match="broken"):
            async with requests.hold_read("alice"):
                raise ValueError("broken")
    async with requests.hold_read("alice"), requests.hold_read("alice"):
        waiting = asyncio.create_task(requests.hold_read("alice").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(30), requests.hold_read("alice"):
        pass


def test_requests_of_one_tenant_are_limited_and_counted_until_they_end():
    requests = TenantRequests(2)
    with requests.hold_request("mallory"), requests.hold_request("mallory"):
        with pytest.raises(HttpProblem, match="2 requests and streams of tenant mallory"):
            requests.hold_request("mallory").__enter__()
        with requests.hold_request("alice"):
            pass
    with requests.hold_request("mallory"):
        pass


async def test_a_tenant_that_holds_its_share_of_connections_is_refused_and_others_are_not():
    who = [{"key_name": name, "tenant": name} for name in ("mallory", "alice")]
    path = "/v1/agents/helper/sessions/s"
    async with (
        house(keys=True, who=who, max_requests_per_tenant=3) as served,
        served.http("mallory") as mallory,
        served.http("alice") as alice,
        contextlib.AsyncExitStack() as streams,
    ):
        for http in (mallory, alice):
            await http.post("/v1/agents/helper/sessions", json={"name": "s"})
        for _ in range(3):
            opened = mallory.stream("GET", f"{path}/events")
            assert (await streams.enter_async_context(opened)).status_code == 200
        assert (await mallory.get(path)).status_code == 429
        assert (await alice.get(path)).status_code == 200


async def test_a_scraper_is_answered_while_its_tenant_holds_its_whole_share():
    who = [{"key_name": "own"}, {"key_name": "scraper", "role": "metrics"}]
    async with (
        house(
            keys=True,
            who=who,
            max_requests_per_tenant=1,
            render_metrics=lambda: (b"trimtab_up 1\n", "text/plain"),
        ) as served,
        served.http("own") as own,
        served.http("scraper") as scraper,
    ):
        requests = served.offer.tenant_requests
        with requests.hold_request("default"):
            assert (await own.get("/v1/agents")).status_code == 429
            assert (await scraper.get("/metrics")).text == "trimtab_up 1\n"
        async with requests.hold_read("default"), requests.hold_read("default"):
            assert (await scraper.get("/metrics")).text == "trimtab_up 1\n"
