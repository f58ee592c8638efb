"""Cost ceilings in every store: what is reserved, what is settled, what a killed process leaves."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests import warm
from tests.stores import places
from trimtab import Session
from trimtab.errors import CostCeilingReached, StoreUnavailable
from trimtab.stores.factory import find_spending_ledger
from trimtab.stores.files import FileStore
from trimtab.stores.files.spending_ledger import SqliteSpendingLedger
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.spending import CallReservation, CostCeilings

pytestmark = pytest.mark.anyio

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 86_400 + 43_200
DAY = 86_400
PRICE = 1_000
CALL = CallReservation(
    agent="helper",
    tenant="acme",
    session="acme/helper/s",
    micros=PRICE,
    session_log_micros=0,
    now=NOON,
    expires_after_s=600,
)


@pytest.fixture
async def ledger(store):
    for name in ("acme/helper/s", "acme/helper/t", "acme/helper/u"):
        opened = await Session.create(store, name, model="claude-sonnet-4-5")
        await opened.close()
    return find_spending_ledger(store)


async def refused(ledger, call, ceilings) -> str:
    with pytest.raises(CostCeilingReached) as error:
        await ledger.reserve(call, ceilings)
    return error.value.ceiling


async def reserve_many(ledger, ceilings, count: int) -> list[int | BaseException]:
    tries = (ledger.reserve(CALL, ceilings) for _ in range(count))
    return await asyncio.gather(*tries, return_exceptions=True)


@pytest.mark.parametrize("name", ["session", "tenant_per_day", "day"])
async def test_of_20_calls_at_once_only_those_that_fit_are_reserved(ledger, name):
    done = await reserve_many(ledger, CostCeilings(**{name: 7 * PRICE + PRICE // 2}), 20)
    assert sum(isinstance(each, int) for each in done) == 7
    assert {each.ceiling for each in done if isinstance(each, CostCeilingReached)} == {name}


async def count_spending(ledger, call) -> dict[str, int]:
    """Return what counts for each ceiling of a call, which a ceiling of nothing tells."""
    counted = {}
    for name in ("session", "tenant_per_day", "day"):
        with pytest.raises(CostCeilingReached) as error:
            await ledger.reserve(replace(call, micros=1), CostCeilings(**{name: 0}))
        counted[name] = round(error.value.counted_usd * 1e6)
    return counted


async def test_no_order_of_concurrent_calls_exceeds_a_ceiling_or_loses_an_amount(place):
    """Two stores stand for two processes. The ceilings are reached by some calls and not by all."""
    chance = random.Random()  # noqa: S311
    ceilings = CostCeilings(session=6_000, tenant_per_day=13_000, day=25_000)
    stores = [await place.open(), await place.open()]
    ledgers = [find_spending_ledger(store) for store in stores]
    if place.name == "memory":
        ledgers[1] = ledgers[0]
    sessions = [(f"t{n % 2}", f"t{n % 2}/helper/{n}") for n in range(6)]
    for _, name in sessions:
        await (await Session.create(stores[0], name, model="claude-sonnet-4-5")).close()
    kept: list[tuple[CallReservation, int]] = []
    refusals: set[str] = set()

    async def make_calls(worker: int) -> None:
        for _ in range(6):
            tenant, session = chance.choice(sessions)
            call = replace(CALL, tenant=tenant, session=session, micros=chance.randrange(1, 2_500))
            ledger = ledgers[worker % 2]
            try:
                number = await ledger.reserve(call, ceilings)
            except CostCeilingReached as reached:
                refusals.add(reached.ceiling)
                continue
            cost = chance.choice((call.micros, call.micros, chance.randrange(call.micros)))
            # Some are never settled: their process was killed.
            if chance.random() < 0.8:
                await ledger.settle(number, cost)
                kept.append((call, cost))
            else:
                kept.append((call, call.micros))

    await asyncio.gather(*(make_calls(worker) for worker in range(12)))
    for tenant, session in sessions:
        call = replace(CALL, tenant=tenant, session=session)
        spent = {
            "session": sum(cost for made, cost in kept if made.session == session),
            "tenant_per_day": sum(cost for made, cost in kept if made.tenant == tenant),
            "day": sum(cost for _, cost in kept),
        }
        assert await count_spending(ledgers[0], call) == spent
        assert spent["session"] <= 6_000
        assert spent["tenant_per_day"] <= 13_000
        assert spent["day"] <= 25_000
    assert len(refusals) > 1
    for store in stores:
        await store.close()


async def test_a_refused_call_counts_for_none_of_its_ceilings(ledger):
    ceilings = CostCeilings(session=5 * PRICE, tenant_per_day=5 * PRICE, day=PRICE)
    await ledger.reserve(CALL, ceilings)
    before = await count_spending(ledger, CALL)
    assert await refused(ledger, CALL, ceilings) == "day"
    assert await count_spending(ledger, CALL) == before == dict.fromkeys(before, PRICE)


async def test_settling_lowers_no_total_that_did_not_count_the_call(ledger):
    """The tenant's ceiling was set while the call was being made."""
    number = await ledger.reserve(CALL, CostCeilings(day=9 * PRICE))
    both = CostCeilings(tenant_per_day=PRICE, day=9 * PRICE)
    await ledger.reserve(CALL, both)
    await ledger.settle(number, 0)
    assert await refused(ledger, replace(CALL, micros=1), both) == "tenant_per_day"


async def test_a_call_whose_clock_is_weeks_ahead_does_not_reset_the_day(place):
    ceilings = CostCeilings(tenant_per_day=PRICE, day=PRICE)
    store, other = await place.open(), await place.open()
    ledger = find_spending_ledger(store)
    today = replace(CALL, now=time.time())
    await ledger.reserve(today, ceilings)
    ahead = ledger if place.name == "memory" else find_spending_ledger(other)
    await ahead.reserve(replace(CALL, now=time.time() + 40 * DAY), ceilings)
    assert await refused(ledger, today, ceilings) == "tenant_per_day"
    await store.close()
    await other.close()


async def test_totals_are_forgotten_after_31_days(place):
    if place.name == "memory":
        pytest.skip("it is gone with its process")
    store = await place.open()
    ledger = find_spending_ledger(store)
    await (await Session.create(store, CALL.session, model="claude-sonnet-4-5")).close()
    ceilings = CostCeilings(session=PRICE, tenant_per_day=PRICE, day=PRICE)
    old, recent = (replace(CALL, now=time.time() - days * DAY) for days in (33, 29))
    for call in (old, recent):
        await ledger.reserve(replace(call, session_log_micros=0), ceilings)
    await store.close()
    store = await place.open()
    ledger = find_spending_ledger(store)
    without_session = replace(ceilings, session=None)
    assert await refused(ledger, recent, without_session) == "tenant_per_day"
    await ledger.reserve(old, without_session)
    await store.close()


async def test_a_reservation_of_postgresql_is_one_statement_and_on_the_disk(migrated, monkeypatch):
    statements: list[bytes] = []
    execute = psycopg.AsyncConnection.execute

    async def count(self, query, *given, **options):
        statements.append(query)
        return await execute(self, query, *given, **options)

    store = await PostgresStore.connect(migrated)
    await (await Session.create(store, CALL.session, model="claude-sonnet-4-5")).close()
    ceilings = CostCeilings(session=9 * PRICE, tenant_per_day=9 * PRICE, day=9 * PRICE)
    await store.spending_ledger().reserve(CALL, ceilings)
    ledger = store.spending_ledger()
    await ledger.reserve(CALL, ceilings)
    with psycopg.connect(migrated, autocommit=True) as connection:
        [(before,)] = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchall()
        monkeypatch.setattr(psycopg.AsyncConnection, "execute", count)
        number = await ledger.reserve(CALL, ceilings)
        [(is_on_disk,)] = connection.execute(
            "SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", [before]
        ).fetchall()
    assert is_on_disk
    await ledger.settle(number, 1)
    assert len(statements) == 2
    await store.close()


async def test_calls_of_other_tenants_and_agents_wait_for_no_lock_of_a_call(migrated):
    store = await PostgresStore.connect(migrated)
    ledger = store.spending_ledger()
    for name in (CALL.session, "other/helper/s"):
        await (await Session.create(store, name, model="claude-sonnet-4-5")).close()
    ceilings = CostCeilings(session=9 * PRICE, tenant_per_day=9 * PRICE, day=9 * PRICE)
    other = replace(CALL, agent="other", tenant="other", session="other/helper/s")
    for call in (CALL, other):
        await ledger.reserve(call, ceilings)
    with psycopg.connect(migrated) as slow:
        for table, column in (("per_day", "agent"), ("per_tenant", "tenant")):
            row = f"FROM trimtab.spending_{table} WHERE {column} = 'other'"
            slow.execute(f"SELECT {row} FOR UPDATE".encode())
        await ledger.reserve(CALL, ceilings)
        waits = asyncio.create_task(ledger.reserve(other, ceilings))
        await ledger.reserve(CALL, ceilings)
        assert not waits.done()
    await waits
    await store.close()


async def test_what_a_call_did_not_cost_is_free_again(ledger):
    ceilings = CostCeilings(session=PRICE, tenant_per_day=PRICE, day=PRICE)
    number = await ledger.reserve(CALL, ceilings)
    await refused(ledger, CALL, ceilings)
    await ledger.settle(number, 100)
    await ledger.reserve(replace(CALL, micros=900), ceilings)
    assert await refused(ledger, replace(CALL, micros=1), ceilings) == "session"


async def test_a_call_is_settled_once(ledger):
    ceilings = CostCeilings(day=PRICE)
    number = await ledger.reserve(CALL, ceilings)
    for _ in range(3):
        await ledger.settle(number, 600)
    await ledger.reserve(replace(CALL, micros=400), ceilings)
    await refused(ledger, replace(CALL, micros=1), ceilings)


async def test_a_tenant_has_one_total_for_all_agents_and_it_can_be_read(ledger):
    ceilings = CostCeilings(tenant_per_day=3 * PRICE)
    number = await ledger.reserve(CALL, ceilings)
    other_agent = replace(CALL, agent="other", session="acme/other/s")
    await ledger.reserve(other_agent, ceilings)
    await ledger.settle(number, PRICE + 1)
    assert await ledger.find_tenant_total("acme", CALL.day) == 2 * PRICE + 1
    assert await refused(ledger, other_agent, ceilings) == "tenant_per_day"
    assert await ledger.find_tenant_total("zoo", CALL.day) == 0
    assert await ledger.find_tenant_total("acme", "2026-01-01") == 0


async def test_tenants_agents_and_sessions_pay_for_themselves(ledger):
    ceilings = CostCeilings(session=PRICE, tenant_per_day=2 * PRICE, day=3 * PRICE)
    await ledger.reserve(CALL, ceilings)
    assert await refused(ledger, CALL, ceilings) == "session"
    other_session = replace(CALL, session="acme/helper/t")
    await ledger.reserve(other_session, ceilings)
    third = replace(CALL, session="acme/helper/u")
    assert await refused(ledger, third, ceilings) == "tenant_per_day"
    await ledger.reserve(replace(third, tenant="other"), ceilings)
    fourth = replace(third, tenant="another", session="acme/helper/t")
    assert await refused(ledger, fourth, replace(ceilings, session=None)) == "day"
    other_agent = replace(CALL, agent="other", tenant="another", session="acme/helper/t")
    await ledger.reserve(other_agent, replace(ceilings, session=None))


async def test_the_next_day_of_utc_begins_at_nothing_and_the_session_does_not(ledger):
    ceilings = CostCeilings(tenant_per_day=PRICE, day=PRICE)
    number = await ledger.reserve(CALL, ceilings)
    await ledger.settle(number, PRICE)
    last_second = replace(CALL, now=NOON + DAY // 2 - 1)
    assert await refused(ledger, last_second, ceilings) == "tenant_per_day"
    midnight = replace(CALL, now=NOON + DAY // 2)
    await ledger.reserve(midnight, ceilings)
    first = CostCeilings(session=2 * PRICE)
    number = await ledger.reserve(CALL, first)
    await ledger.settle(number, 2 * PRICE)
    assert await refused(ledger, replace(CALL, now=NOON + 40 * DAY), first) == "session"


async def test_a_reservation_that_is_never_settled_counts_for_its_day_and_not_longer(ledger):
    ceilings = CostCeilings(day=PRICE)
    await ledger.reserve(CALL, ceilings)
    assert await refused(ledger, replace(CALL, now=NOON + 3_600), ceilings) == "day"
    await ledger.reserve(replace(CALL, now=NOON + DAY), ceilings)


async def test_a_session_lets_go_of_a_reservation_that_has_expired(ledger):
    ceilings = CostCeilings(session=PRICE)
    await ledger.reserve(CALL, ceilings)
    assert await refused(ledger, replace(CALL, now=NOON + 599), ceilings) == "session"
    await ledger.reserve(replace(CALL, now=NOON + 601), ceilings)


async def test_what_the_log_knows_counts_for_the_session(ledger):
    ceilings = CostCeilings(session=PRICE)
    known = replace(CALL, session_log_micros=PRICE)
    assert await refused(ledger, known, ceilings) == "session"
    await ledger.reserve(replace(CALL, micros=1, session_log_micros=PRICE - 1), ceilings)


async def test_a_deleted_session_has_spent_nothing_when_it_begins_anew(ledger, store):
    ceilings = CostCeilings(session=PRICE)
    number = await ledger.reserve(CALL, ceilings)
    await ledger.settle(number, PRICE)
    await refused(ledger, CALL, ceilings)
    if find_spending_ledger(store) is not ledger and not hasattr(store, "spending_ledger"):
        pytest.skip("a store without a ledger has one in memory, which knows no deletions")
    await store.delete("acme/helper/s")
    await (await Session.create(store, "acme/helper/s", model="claude-sonnet-4-5")).close()
    await ledger.reserve(CALL, ceilings)


async def test_what_was_spent_is_known_when_the_store_is_opened_again(place):
    if place.name == "memory":
        pytest.skip("nothing outlives it")
    ceilings = CostCeilings(session=PRICE, tenant_per_day=PRICE, day=PRICE)
    for attempt in range(2):
        store = await place.open()
        if not attempt:
            await (await Session.create(store, CALL.session, model="claude-sonnet-4-5")).close()
            number = await find_spending_ledger(store).reserve(CALL, ceilings)
            await find_spending_ledger(store).settle(number, PRICE)
        else:
            await refused(find_spending_ledger(store), CALL, ceilings)
        await store.close()


KILLED = """
    import asyncio, sys
    from tests.stores.test_spending import CALL, PRICE
    from trimtab.stores.factory import find_spending_ledger, open_store
    from trimtab.stores.spending import CostCeilings

    async def main():
        ledger = find_spending_ledger(await open_store(sys.argv[1]))
        while True:
            number = await ledger.reserve(CALL, CostCeilings(day=1000 * PRICE))
            print("reserved", flush=True)
            await ledger.settle(number, PRICE)
            print("settled", flush=True)

    asyncio.run(main())
"""


def kill_after_lines(where: str, lines: int) -> int:
    """Kill a process that spends after it has said so much; how many calls it has told of."""
    process = warm.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), where],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    return told.count("reserved\n")


@pytest.mark.process
async def test_a_process_that_is_killed_leaves_no_less_than_it_spent(place):
    """Whatever the moment: what was settled counts, and what was begun as well."""
    if place.name == "memory":
        pytest.skip("it has no other process")
    store = await place.open()
    await (await Session.create(store, CALL.session, model="claude-sonnet-4-5")).close()
    where = place.conninfo if isinstance(place, places.Postgres) else str(place.root)
    reserved = sum(kill_after_lines(where, lines) for lines in (3, 8, 15))
    with pytest.raises(CostCeilingReached) as error:
        await find_spending_ledger(store).reserve(CALL, CostCeilings(day=0))
    # Each process may have begun one more call than it had the time to say.
    assert reserved <= round(error.value.counted_usd * 1e6 / PRICE) <= reserved + 3
    await store.close()


@pytest.mark.process
async def test_processes_share_one_ceiling(place):
    if place.name == "memory":
        pytest.skip("it has no other process")
    store = await place.open()
    await (await Session.create(store, CALL.session, model="claude-sonnet-4-5")).close()
    where = place.conninfo if isinstance(place, places.Postgres) else str(place.root)
    script = textwrap.dedent(
        """
        import asyncio, sys
        from tests.stores.test_spending import PRICE, reserve_many
        from trimtab.stores.factory import find_spending_ledger, open_store
        from trimtab.stores.spending import CostCeilings

        async def main():
            store = await open_store(sys.argv[1])
            ledger = find_spending_ledger(store)
            done = await reserve_many(ledger, CostCeilings(day=7 * PRICE), 10)
            print(sum(isinstance(each, int) for each in done))
            await store.close()

        asyncio.run(main())
        """
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with warm.starts():
        running = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", script, where, stdout=subprocess.PIPE, env=env
            )
            for _ in range(2)
        ]
    assert sum([int((await process.communicate())[0]) for process in running]) == 7
    await store.close()


def test_the_file_is_its_owners_alone(tmp_path: Path):
    path = tmp_path / ".spending" / "spending.sqlite3"
    ledger = SqliteSpendingLedger(path)
    asyncio.run(ledger.reserve(CALL, CostCeilings(day=PRICE)))
    ledger.close()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_file_of_a_later_release_is_refused(tmp_path: Path):
    path = tmp_path / "spending.sqlite3"
    ledger = SqliteSpendingLedger(path)
    asyncio.run(ledger.settle(1, 1))
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreUnavailable, match=r"format version 2, .* reads 1: upgrade trimtab"):
        asyncio.run(ledger.settle(1, 1))


async def test_a_store_without_ceilings_keeps_no_file(tmp_path: Path):
    store = FileStore(tmp_path / "sessions")
    await (await Session.create(store, "s", model="claude-sonnet-4-5")).close()
    await store.delete("s")
    await store.close()
    assert not (tmp_path / "sessions" / ".spending").exists()


async def test_a_session_that_is_reset_has_all_its_budget_again_and_the_day_does_not(ledger):
    own = CostCeilings(session=2 * PRICE, tenant_per_day=9 * PRICE, day=9 * PRICE)
    for _ in range(2):
        await ledger.settle(await ledger.reserve(CALL, own), PRICE)
    assert await refused(ledger, CALL, own) == "session"
    await ledger.reset_session(CALL.session, 2 * PRICE)
    # The log goes on to say what the session has cost in all.
    later = replace(CALL, session_log_micros=2 * PRICE)
    await ledger.settle(await ledger.reserve(later, own), PRICE)
    assert await refused(ledger, replace(CALL, micros=PRICE + 1), own) == "session"
    assert await refused(ledger, later, CostCeilings(tenant_per_day=3 * PRICE)) == "tenant_per_day"
    assert await refused(ledger, later, CostCeilings(day=3 * PRICE)) == "day"
    # A log may know more than was settled; that was spent before the reset as well.
    await ledger.reset_session("acme/helper/t", 50 * PRICE)
    other = replace(CALL, session="acme/helper/t", session_log_micros=50 * PRICE)
    await ledger.reserve(other, own)


async def test_a_call_that_runs_during_a_reset_counts_for_the_new_budget(ledger):
    own = CostCeilings(session=2 * PRICE)
    running = await ledger.reserve(CALL, own)
    await ledger.reset_session(CALL.session, 0)
    await ledger.settle(running, PRICE)
    await ledger.settle(await ledger.reserve(CALL, own), PRICE)
    assert await refused(ledger, CALL, own) == "session"
