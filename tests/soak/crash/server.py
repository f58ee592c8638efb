"""Crashes around PostgreSQL: its clients are killed, and a server of our own is stopped at once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import progress
from tests.soak.crash.cluster import Cluster
from tests.soak.crash.files import NAME, killed, past
from tests.soak.crash.ledger import Ledgers
from tests.soak.crash.look import Open, looked, prepared
from tests.soak.crash.writer import Process, Tell, create, steps, told
from trimtab.errors import StoreUnavailable
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.stores.postgres import PostgresStore

SESSIONS = 6
"""That are led at once, each over a connection of its own."""
BACK = signal.SIGUSR1
"""Tells a client that the server is back."""
LIVES = 10
"""Crashes that a session lives through, until it is long enough."""
CLIENT = "trimtab-crash"
"""By which the server knows the connections of a client that is killed."""


def postgres(conninfo: str) -> Open:
    async def opened() -> Store:
        return await PostgresStore.connect(conninfo, max_size=SESSIONS, wait=60)

    return opened


def clients(conninfo: str, kills: int, pick: random.Random) -> Counter[str]:
    """Kill a client that leads a session on, again and again."""
    named = postgres(make_conninfo(conninfo, application_name=CLIENT))
    out, ledgers = Counter[str](), Ledgers()
    for number in range(kills):
        progress(f"postgres: kill {number + 1} of {kills} of a client")
        if number % LIVES == 0:
            ledgers = prepared(named, _past_anew if number else past)
        after = pick.expovariate(1 / 0.06)
        out += killed(named, ledgers, number, after, lambda: _wait_until_gone(conninfo))
    return out


async def _past_anew(store: Store) -> None:
    await store.delete(NAME)
    await past(store)


def _wait_until_gone(conninfo: str) -> None:
    """What a killed client had sent, the server may still be doing."""
    query = "SELECT FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while connection.execute(query, [CLIENT]).fetchone() is not None:
            time.sleep(0.002)


def stops(cluster: Cluster, times: int, pick: random.Random) -> Counter[str]:
    """Stop the server in the midst of appends to several sessions, and start it again."""
    store = postgres(cluster.conninfo)
    out, ledgers = Counter[str](), Ledgers()
    for number in range(times):
        progress(f"postgres: server stop {number + 1} of {times}")
        if number % LIVES == 0:
            ledgers = prepared(store, _sessions_anew if number else _sessions)
        out += stopped(cluster, store, ledgers, number, pick.uniform(0.05, 0.8))
    return out


async def _sessions_anew(store: Store) -> None:
    for index in range(SESSIONS):
        await store.delete(f"s{index}")
    await _sessions(store)


async def _sessions(store: Store) -> None:
    for index in range(SESSIONS):
        await create(store, f"s{index}")


def stopped(
    cluster: Cluster, store: Open, ledgers: Ledgers, number: int, after: float
) -> Counter[str]:
    process = Process(lambda tell: _live_through(store, number, tell))
    heard, begun = Counter[str](), 0.0

    def crash() -> None:
        cluster.stop()
        cluster.start()
        os.kill(process.pid, BACK)

    restart = threading.Thread(target=crash)
    for said in process.hear():
        ledgers.hear(said)
        heard["acknowledged"] += "ack" in said
        heard["unanswered"] += "unanswered" in said
        begun = begun or time.monotonic()
        if restart.ident is None and time.monotonic() > begun + after:
            restart.start()
    process.end()
    restart.join()
    return Counter(stops=1) + heard + looked(store, ledgers, number)


async def _live_through(open_store: Open, number: int, tell: Tell) -> None:
    """Lead all sessions until the server is gone and back again, and a turn further."""
    plain = await open_store()
    store = told(plain, tell)
    # An error would not do as a sign: a connection that breaks while nobody uses it is replaced.
    back = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(BACK, back.set)

    async def lead(index: int) -> None:
        session = await Session.open(store, f"s{index}")
        turn = 1_000 * (number + 1)
        while True:
            last = back.is_set()
            for step in steps(session, turn):
                while True:
                    try:
                        await step()
                    except StoreUnavailable:
                        tell({"unanswered": index})
                        await asyncio.sleep(0.05)
                    else:
                        break
            turn += 1
            if last:
                return

    await asyncio.gather(*(lead(index) for index in range(SESSIONS)))
    await plain.close()
