"""Appends to PostgreSQL through the store, against psycopg alone, in one run.

Both write the same bytes with the same commits from one process with one event loop: messages of
1 KB, one a commit and three a commit, each connection to a session of its own. Bare is a table of
(session, seq, body) with the same primary key and the same sixteen hash partitions, a cursor for
each connection and one prepared INSERT, given the JSON ready made. The store makes the JSON itself
and does all it promises: position, gap, epoch, key.

Rounds take turns, the one that begins changes with each; `ratio` is the median of the rounds'
ratios of throughput, `spread` their least and greatest. `cpu_us` is what one append takes of the
process that appends, in microseconds: with many connections it is what limits both. `bytes` is
what the relations take on disk for each message, indexes and TOAST included. TRIMTAB_POSTGRES names
the server; a database is made there and dropped.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import finish, head, parser, progress, skip
from trimtab.engine.log.event import Event, MessageAdded, Size, dump_event_line
from trimtab.engine.log.message import Message, Text
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.migrations import migrate

SERVER = os.environ.get("TRIMTAB_POSTGRES") or "host=127.0.0.1 port=5432 user=postgres"
CONNECTIONS = (1, 16, 64)
LEAST = 0.8
"""The ratio that must be reached."""
BARE = """
CREATE TABLE bare (session uuid NOT NULL, seq int NOT NULL, body text NOT NULL,
    PRIMARY KEY (session, seq)) PARTITION BY HASH (session);
DO $$ BEGIN FOR i IN 0..15 LOOP
    EXECUTE format('CREATE TABLE bare_%s PARTITION OF bare
        FOR VALUES WITH (MODULUS 16, REMAINDER %s)', i, i);
END LOOP; END $$;
"""
SIZE = """
SELECT sum(pg_total_relation_size(relid))::bigint, (SELECT count(*) FROM {table})
FROM pg_partition_tree('{table}') WHERE isleaf
"""
TEXT = ("All happy families are alike; each unhappy family is unhappy in its own way. " * 20)[:860]

Work = tuple[UUID, list[list[Event]]]
Runner = Callable[[str, list[Work]], Awaitable[tuple[float, float]]]


def message(seq: int) -> Event:
    """A message of 1 KB as it is stored."""
    said = MessageAdded(
        message=Message(role="user", parts=(Text(text=f"{seq:08} {TEXT}"),)),
        sizes=(Size(bytes=870, tokens=200),),
        counter="bytes/4",
    )
    return Event(seq=seq, at=1_700_000_000.123456 + seq, body=said)


def work(connections: int, appends: int, batch: int) -> list[Work]:
    """For each connection a session, and what is appended to it; the first begins the session."""

    def log() -> list[list[Event]]:
        starts = range(1, (appends + WARM) * batch + 1, batch)
        return [[message(seq + i) for i in range(batch)] for seq in starts]

    return [(uuid4(), log()) for _ in range(connections)]


WARM = 48
"""Appends before the clock starts: the session begins, every connection has its statements."""


async def timed(
    steps: list[Callable[[list[Event]], Awaitable[Any]]], works: list[Work]
) -> tuple[float, float]:
    """Seconds for all to append all they have, once all are warm, and of these the client's CPU."""

    async def run(step: Callable[[list[Event]], Awaitable[Any]], part: list[list[Event]]) -> None:
        for events in part:
            await step(events)

    pairs = list(zip(steps, works, strict=True))
    await asyncio.gather(*(run(step, log[:WARM]) for step, (_, log) in pairs))
    gc.collect()
    gc.freeze()  # what waits to be appended is no garbage, and no part of the work to walk through
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(run(step, log[WARM:]) for step, (_, log) in pairs))
    return time.perf_counter() - begun, time.process_time() - cpu


async def through_store(conninfo: str, works: list[Work]) -> tuple[float, float]:
    store = await PostgresStore.connect(conninfo, max_size=len(works))

    def step(session: str) -> Callable[[list[Event]], Awaitable[None]]:
        return lambda events: store.append(session, events)

    try:
        return await timed([step(str(session)) for session, _ in works], works)
    finally:
        await store.close()


async def bare(conninfo: str, works: list[Work]) -> tuple[float, float]:
    connections = [await psycopg.AsyncConnection.connect(conninfo, autocommit=True) for _ in works]
    rows = len(works[0][1][0])
    query = "INSERT INTO bare VALUES " + ", ".join(["(%s, %s, %s)"] * rows)
    lines = {event.seq: dump_event_line(event) for events in works[0][1] for event in events}

    def step(
        cursor: psycopg.AsyncCursor, session: UUID
    ) -> Callable[[list[Event]], Awaitable[object]]:
        def append(events: list[Event]) -> Awaitable[object]:
            values = [v for event in events for v in (session, event.seq, lines[event.seq])]
            return cursor.execute(query.encode(), values, prepare=True)

        return append

    try:
        cursors = [connection.cursor() for connection in connections]
        steps = [step(cursor, work[0]) for cursor, work in zip(cursors, works, strict=True)]
        return await timed(steps, works)
    finally:
        for connection in connections:
            await connection.close()


async def measure(conninfo: str, connections: int, batch: int, quick: bool) -> dict[str, Any]:
    rounds, seconds = (3, 1.0) if quick else (11, 3.0)
    rate = 500 if connections == 1 else 1_600
    appends = max(20, int(rate * seconds / connections))
    rates: dict[str, list[float]] = {"store": [], "bare": []}
    cpus: dict[str, list[float]] = {"store": [], "bare": []}
    runners: list[tuple[str, Runner]] = [("store", through_store), ("bare", bare)]
    for number in range(rounds):
        progress(f"{connections} connections, {batch} a commit: round {number + 1} of {rounds}")
        for name, runner in runners if number % 2 else runners[::-1]:
            took, cpu = await runner(conninfo, work(connections, appends, batch))
            rates[name].append(connections * appends / took)
            cpus[name].append(cpu / connections / appends)
    ratios = [ours / theirs for ours, theirs in zip(rates["store"], rates["bare"], strict=True)]
    return {
        "connections": connections,
        "events_a_commit": batch,
        "store_a_second": round(statistics.median(rates["store"])),
        "bare_a_second": round(statistics.median(rates["bare"])),
        "store_cpu_us": round(statistics.median(cpus["store"]) * 1e6),
        "bare_cpu_us": round(statistics.median(cpus["bare"]) * 1e6),
        "ratio": round(statistics.median(ratios), 3),
        "spread": f"{min(ratios):.2f}–{max(ratios):.2f}",
    }


async def sizes(conninfo: str) -> dict[str, Any]:
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        out: dict[str, Any] = {}
        for name, table in (("store", "trimtab.events"), ("bare", "bare")):
            query = SIZE.format(table=table).encode()
            row = await (await connection.execute(query)).fetchone()
            assert row is not None
            out[f"bytes_{name}"] = round(row[0] / row[1])
        out["bytes_ratio"] = round(out["bytes_store"] / out["bytes_bare"], 3)
        return out


async def main(quick: bool) -> dict[str, Any]:
    name = f"trimtab_append_{uuid4().hex[:8]}"
    server = await psycopg.AsyncConnection.connect(SERVER, dbname="postgres", autocommit=True)
    async with server:
        await server.execute(f"CREATE DATABASE {name}".encode())
        try:
            conninfo = make_conninfo(SERVER, dbname=name)
            await migrate(conninfo)
            async with await psycopg.AsyncConnection.connect(conninfo) as made:
                await made.execute(BARE.encode())
            rows = [
                await measure(conninfo, connections, batch, quick)
                for batch in (1, 3)
                for connections in CONNECTIONS
            ]
            single = {f"ratio_{row['connections']}": row["ratio"] for row in rows[:3]}
            low = [f"{name} is {ratio}" for name, ratio in single.items() if ratio < LEAST]
            return {
                "sample": f"messages of {len(dump_event_line(message(1)))} bytes",
                "rows": rows,
                **single,
                **await sizes(conninfo),
                "below_target": low,
            }
        finally:
            await server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def start() -> int:
    asked = parser(__doc__).parse_args()
    try:
        report = asyncio.run(main(asked.quick))
    except psycopg.OperationalError as error:
        return skip(f"no PostgreSQL ({error})", as_json=asked.json)
    return finish({**head(("psycopg", "psycopg-pool")), **report}, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
