"""How long it takes to erase or export one user of a large tenant, and to list its newest sessions.

A tenant has 10,000 sessions of 49 events each, in a PostgreSQL database of its own. They are copies
of one session that the library wrote, made by SQL. One user has written one message in one more
session. This user is exported and erased. Then a page of 100 sessions is listed by recency. The
same is done in a tenant with 100,000 sessions of 3 events.

sessions        sessions of the first tenant
events          events of all of them
erase_user_s    seconds until the user is erased
export_user_s   seconds until the user's data is exported
list_recent_ms  milliseconds for a page of sessions, the median of several
hot_share       share of the updates of `sessions` that changed no index, while turns are claimed
wide            the same figures of the second tenant
plans           `EXPLAIN (ANALYZE)` of the statements
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.harness import Report, run
from benchmarks.store_places import Postgres, no_server, place
from trimtab.engine.log.message import make_text_message
from trimtab.session import Session
from trimtab.session.recorder import SessionRecorder
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.escaping import compute_session_uuid, compute_subject_hash
from trimtab.stores.postgres.migrations import migrate
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.postgres.store import LIST_BY_RECENCY_SQL
from trimtab_serve.forgetting import erasure, export
from trimtab_serve.forgetting.stored_sessions import open_idle_service
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.service.sender import with_sender

SEED = "seeds/helper/seed"
PAGE = 100
CLAIMS = 200

COPY_SESSIONS = """
INSERT INTO trimtab.sessions SELECT (jsonb_populate_record(sessions, jsonb_build_object(
    'id', copies.id, 'name', copies.name, 'active_at', random() * 1e9))).*
FROM trimtab.sessions CROSS JOIN unnest(%s::uuid[], %s::text[]) AS copies (id, name)
WHERE sessions.id = %s
"""
COPY_EVENTS = """
INSERT INTO trimtab.events SELECT (jsonb_populate_record(
    events, jsonb_build_object('session', copies.id))).*
FROM trimtab.events CROSS JOIN unnest(%s::uuid[]) AS copies (id)
WHERE session = %s AND seq <= %s
"""
HOT = """
SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables
WHERE schemaname = 'trimtab' AND relname = 'sessions'
"""


@dataclass(frozen=True, slots=True)
class Size:
    tenant: str
    sessions: int
    events: int
    """Events of each session."""


FULL = (Size("acme", 10_000, 49), Size("wide", 100_000, 3))
QUICK = (Size("acme", 500, 49), Size("wide", 5_000, 3))


async def write_seed(store: PostgresStore) -> None:
    session = await Session.create(store, SEED, model="gpt-4o")
    number = 0
    while await store.position(SEED) < FULL[0].events:
        number += 1
        text = f"Message {number} of a user about nothing much, in about a dozen words."
        await session.add(with_sender(make_text_message("user", text), f"user-{number % 2}"))
        await session.add(make_text_message("assistant", f"Reply {number}. " + "Certainly. " * 20))
    await session.close()


async def copy_seed(connection: psycopg.AsyncConnection, size: Size) -> None:
    names = [f"{size.tenant}/helper/u{number:06}" for number in range(size.sessions)]
    seed = compute_session_uuid(SEED)
    for first in range(0, len(names), 1_000):
        some = names[first : first + 1_000]
        ids = [compute_session_uuid(name) for name in some]
        await connection.execute(COPY_SESSIONS, [ids, some, seed])
        await connection.execute(COPY_EVENTS, [ids, seed, size.events])


async def measure_tenant(conninfo: str, store: PostgresStore, size: Size) -> tuple[Report, bool]:
    """Return the figures of a tenant, and whether the user was found and erased."""
    tenant = size.tenant
    session = await Session.create(store, f"{tenant}/helper/annas", model="gpt-4o")
    await session.add(with_sender(make_text_message("user", "My name is Anna."), "anna"))
    await session.close()
    async with open_idle_service(conninfo, store) as service:
        begun = time.perf_counter()
        lines = [line async for line in export.export_user(service, tenant, "anna")]
        exported = time.perf_counter() - begun
        begun = time.perf_counter()
        job = await erasure.erase_user(service, tenant, "anna", by="benchmark")
        erased = time.perf_counter() - begun
    pages: list[float] = []
    listed = 0
    for _ in range(9):
        begun = time.perf_counter()
        listed = len(await store.recent_sessions(f"{tenant}/helper/", limit=PAGE))
        pages.append(1e3 * (time.perf_counter() - begun))
    report = {
        "sessions": size.sessions + 1,
        "events": size.sessions * size.events,
        "erase_user_s": round(erased, 3),
        "export_user_s": round(exported, 3),
        "list_recent_ms": round(statistics.median(pages), 1),
    }
    is_right = job.sessions == 1 and lines[-1]["messages"] == 1 and listed == PAGE
    return report, is_right


async def measure_hot_share(store: PostgresStore, connection: psycopg.AsyncConnection) -> float:
    """Claim turns of a session, and return how many of the updates were within one page."""
    session = await Session.create(store, "seeds/helper/turns", model="gpt-4o")
    for _ in range(CLAIMS):
        await SessionRecorder(session).claim()
    await session.close()
    await asyncio.sleep(2)  # until the statistics are there
    row = await (await connection.execute(HOT)).fetchone()
    assert row is not None
    return round(row[0] / max(row[1], 1), 2)


async def explain(
    connection: psycopg.AsyncConnection, query: bytes, parameters: Sequence[Any]
) -> list[str]:
    """Return the plan. What is the same in all partitions is shown once."""
    cursor = psycopg.AsyncRawCursor(connection)
    await cursor.execute(b"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + query, parameters)
    lines = [line for (line,) in await cursor.fetchall() if "(never executed)" not in line]
    return [
        *dict.fromkeys(
            re.sub(r"_\d\d?\b|_\d\d(?=_)| rows=.*| \(actual.*", "", line) for line in lines
        )
    ]


async def measure(conninfo: str, sizes: Sequence[Size]) -> Report:
    await migrate(conninfo)
    await migrate_job_queue(conninfo)
    store = await PostgresStore.connect(conninfo)
    await write_seed(store)
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await connection.execute("SET synchronous_commit = off")
        for size in sizes:
            await copy_seed(connection, size)
        await connection.execute("VACUUM ANALYZE")
        figures = [await measure_tenant(conninfo, store, size) for size in sizes]
        plans = {
            "sessions_about": await explain(
                connection, QUERIES["sessions_about"], [[compute_subject_hash("wide/", "user-9")]]
            ),
            "recent_sessions": await explain(
                connection, LIST_BY_RECENCY_SQL, ["wide/helper/", PAGE, 5e8, ""]
            ),
        }
        hot_share = await measure_hot_share(store, connection)
    await store.close()
    broken = [
        f"tenant {size.tenant}: the user was missed"
        for size, (_, is_right) in zip(sizes, figures, strict=True)
        if not is_right
    ]
    return {
        **figures[0][0],
        "hot_share": hot_share,
        "wide": figures[1][0],
        "plans": plans,
        "broken": broken,
    }


def main(quick: bool) -> Report:
    reason = no_server()
    if reason is not None:
        return {"skipped": reason}
    with place("postgres") as database:
        assert isinstance(database, Postgres)
        return asyncio.run(measure(database.conninfo, QUICK if quick else FULL))


if __name__ == "__main__":
    raise SystemExit(run(__doc__, main, ("psycopg",)))
