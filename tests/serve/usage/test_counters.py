"""What all counters promise: each session counts once, with what it stores now."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from random import Random

import pytest

from trimtab.engine.log.message import make_text_message
from trimtab.session import Session
from trimtab_serve.queue.address import SessionAddress
from trimtab_serve.usage.protocol import TenantTotals

pytestmark = pytest.mark.anyio


def address(name: str, tenant: str = "acme") -> SessionAddress:
    return SessionAddress(tenant=tenant, agent="helper", name=name)


async def write(store, session: SessionAddress, size: int) -> None:
    """Add a text of a size that hardly shrinks when it is compressed."""
    opened = await Session.open_or_create(store, str(session), model="claude-sonnet-4-5")
    random = Random(size)  # noqa: S311 - only has to be the same each time
    text = b64encode(random.randbytes(size)).decode()[:size]
    await opened.add(make_text_message("user", text))
    await opened.close()


NOTHING = TenantTotals(sessions=0, stored_bytes=0)


async def totals(counters, tenant: str = "acme") -> TenantTotals:
    full = await counters.find_full(session_bytes=1, tenant_sessions=1, tenant_bytes=1)
    return full.tenants.get(tenant, NOTHING)


async def sizes(counters) -> dict[str, int]:
    full = await counters.find_full(session_bytes=1, tenant_sessions=9**9, tenant_bytes=9**18)
    return dict(full.session_bytes)


async def test_sessions_and_bytes_are_counted_once_however_often_they_are_measured(counted):
    store, counters = counted
    one, two = address("one"), address("two")
    for session, size in ((one, 1_000), (two, 20_000)):
        await write(store, session, size)
    for _ in range(3):
        await counters.measure([one, two])
    counted_sizes = await sizes(counters)
    assert 1_000 < counted_sizes[str(one)] < 15_000 < counted_sizes[str(two)] < 30_000
    assert await totals(counters) == TenantTotals(
        sessions=2, stored_bytes=sum(counted_sizes.values())
    )
    assert await totals(counters, "zoo") == NOTHING


async def test_what_is_added_counts_and_so_does_a_large_text(counted):
    store, counters = counted
    one = address("one")
    await write(store, one, 1_000)
    await counters.measure([one])
    before = (await sizes(counters))[str(one)]
    await write(store, one, 5_000)
    await counters.measure([one])
    after = (await sizes(counters))[str(one)]
    assert 3_700 <= after - before < 10_000
    await write(store, one, 200_000)  # stored beside the log
    await counters.measure([one])
    assert (await sizes(counters))[str(one)] - after > 150_000


async def test_a_fork_counts_as_a_session_with_all_its_bytes(counted):
    store, counters = counted
    one, copy = address("one"), address("copy")
    await write(store, one, 30_000)
    opened = await Session.open_or_create(store, str(one), model="claude-sonnet-4-5")
    await (await opened.fork(str(copy))).close()
    await opened.close()
    await counters.measure([one, copy])
    found = await sizes(counters)
    assert found[str(copy)] > 22_000
    assert (await totals(counters)).sessions == 2


async def test_a_deleted_session_does_not_count_and_nothing_counts_it_again(counted):
    store, counters = counted
    one, two = address("one"), address("two")
    for session in (one, two):
        await write(store, session, 1_000)
    await counters.measure([one, two])
    await counters.forget(one)
    await store.delete(str(one))
    await counters.measure([one, two])
    assert [*await sizes(counters)] == [str(two)]
    assert (await totals(counters)).sessions == 1


async def test_what_was_erased_does_not_count(counted):
    store, counters = counted
    one = address("one")
    await write(store, one, 40_000)
    await counters.measure([one])
    assert (await sizes(counters))[str(one)] > 30_000
    opened = await Session.open_or_create(store, str(one), model="claude-sonnet-4-5")
    await opened.erase("m2")
    await opened.close()
    await counters.recount(one)
    assert (await sizes(counters))[str(one)] < 20_000


async def test_only_what_has_reached_a_limit_is_told(counted):
    store, counters = counted
    small, large = address("small"), address("large", "zoo")
    for session, size in ((small, 100), (large, 50_000)):
        await write(store, session, size)
    await counters.measure([small, large])
    full = await counters.find_full(session_bytes=30_000, tenant_sessions=2, tenant_bytes=30_000)
    assert ([*full.session_bytes], [*full.tenants]) == ([str(large)], ["zoo"])


async def test_messages_that_wait_count_before_and_after_a_session_is_measured(counted):
    _, counters = counted
    one = address("one")
    assert await counters.reserve(one, 700, limit=1_000) is None
    assert await counters.reserve(one, 400, limit=1_000) == 700
    assert await counters.reserve(one, 300, limit=1_000) is None
    found = await counters.find_totals(["acme", "zoo"])
    assert found == {"acme": TenantTotals(sessions=1, stored_bytes=1_000)}
    # Nothing was stored after all.
    await counters.measure([one])
    assert (await counters.find_totals(["acme"]))["acme"] == NOTHING


async def test_reservations_that_come_at_once_do_not_pass_the_limit_together(counted):
    _, counters = counted
    await counters.reserve(address("first"), 1, limit=10_000)
    answers = await asyncio.gather(
        *(counters.reserve(address(f"s{n % 3}"), 999, limit=5_000) for n in range(9))
    )
    assert answers.count(None) == 5
    assert (await counters.find_totals(["acme"]))["acme"].stored_bytes == 1 + 5 * 999


async def test_sessions_that_came_and_went_while_no_server_ran_are_noticed(tmp_path):
    from tests.serve.queue.memory_queue import MemoryDatabase
    from trimtab.stores.files import FileStore
    from trimtab_serve.usage.sqlite import SqliteUsageCounters

    store = FileStore(tmp_path, fsync=False)
    counters = SqliteUsageCounters(MemoryDatabase(), store)
    one, two, own = address("one"), address("two"), address("own", "default")
    for session in (one, own):
        await write(store, session, 1_000)
    await counters.synchronise()
    assert {*await sizes(counters)} == {str(one), str(own)}
    await store.delete(str(one))
    await write(store, two, 1_000)
    await counters.synchronise()
    assert {*await sizes(counters)} == {str(two), str(own)}
    assert (await totals(counters)).sessions == 1
    await store.close()
