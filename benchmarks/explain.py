"""How PostgreSQL carries out every hot statement of a large database, and how fast ceilings are.

    python -m benchmarks.explain [--quick] [--json]

A server of its own gets 5 million events of 100,000 sessions (200,000 of 4,000 with --quick), a
tenant's total for each of 100,000 tenants, and queues of 20,000 messages and replies. Then each
operation of `OPERATIONS` runs once to prepare its statements and once more to be looked at. The
server logs the plan of each statement that it really ran, with its time and the pages that it read,
also those inside procedures: nothing is copied from the code. To look at another operation, add a
function with `@operation`.

events, sessions, tenants   rows in the database
statements                  statements that were looked at
seq_scans                   those that read a whole table, or a whole partition; must be 0
slowest_ms                  the slowest statement, by the server's clock
reservations_per_s          calls that are reserved and settled under three ceilings, 16 at once,
                            all of one agent and day
commits_per_s               updates of one row each by itself, 16 at once, from the same process
same_row_commits_per_s      updates of one row by all 16, as a lock of that row allows
reservations_ratio          reservations_per_s by commits_per_s; a reserved and settled call makes
                            two statements

A `seq_scan` counts if the table has 1,000 rows or more; the planner is right to read a small one.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median

from psycopg import AsyncConnection
from psycopg.types.numeric import Int8

from benchmarks.crash.cluster import Cluster, cluster, programs
from benchmarks.harness import Report, progress, run
from trimtab.engine.log.event import (
    CallOutcome,
    Event,
    MessageAdded,
    ModelCall,
    Size,
    TurnProgressRecord,
    Usage,
)
from trimtab.engine.log.message import make_text_message
from trimtab.engine.window.checkpoint import Snapshot, snapshot_to_json
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.connection_pool import ConnectionPool
from trimtab.stores.postgres.escaping import compute_session_uuid
from trimtab.stores.postgres.event_rows import event_to_row_and_blobs
from trimtab.stores.postgres.migrations import migrate
from trimtab.stores.postgres.spending import PostgresSpendingLedger
from trimtab.stores.spending import CallReservation, CostCeilings
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.rows import encode_inbound_body, encode_outbound_body

SESSIONS = {"full": 100_000, "quick": 4_000}
EVENTS_PER_SESSION = 50
CALLS_PER_SESSION = 10
TENANTS = 100_000
QUEUED = 20_000
SMALL_TABLE_ROWS = 1_000
AT_ONCE = 16
CALLS = {"full": 8_000, "quick": 2_000}
"""Reservations, and updates, to measure."""
ROUNDS = 5
"""In turn, so that whatever else the machine does befalls both."""

AUTO_EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
}
_LOGGED_PLAN = re.compile(r"duration: ([\d.]+) ms  plan:\n((?:\t.*\n)+)")
_SEQ = 987_654_321
"""Position of an event whose row is the pattern of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What operations use."""

    store: PostgresStore
    queue: PostgresMessageQueue
    ledger: PostgresSpendingLedger
    connections: ConnectionPool


Operation = Callable[[Database, str], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {}
"""Each gets a session that no other has changed."""


def operation(work: Operation) -> Operation:
    OPERATIONS[work.__name__] = work
    return work


def said(seq: int, key: str | None = None) -> Event:
    message = make_text_message("user", "What is in the file? Look closely, please. " * 4)
    body = MessageAdded(message=message, sizes=(Size(bytes=172, tokens=40),), key=key)
    return Event(seq=seq, at=time.time(), body=body)


NEXT = EVENTS_PER_SESSION + 1
CALL = CallReservation(
    agent="helper",
    tenant="",
    session="",
    micros=1_000,
    session_log_micros=0,
    now=time.time(),
    expires_after_s=600,
)
CEILINGS = CostCeilings(session=10**15, tenant_per_day=10**15, day=10**15)


def model_call(seq: int) -> Event:
    body = ModelCall(position=seq - 1, bytes=1_000, tokens=300, bound=400, max_output=100)
    return Event(seq=seq, at=time.time(), body=body)


@operation
async def begin_session(database: Database, session: str) -> None:
    await database.store.append(f"{session}-new", [said(1)])


@operation
async def append_one(database: Database, session: str) -> None:
    await database.store.append(session, [said(NEXT)])


@operation
async def append_few(database: Database, session: str) -> None:
    await database.store.append(session, [said(NEXT, "a"), said(NEXT + 1), said(NEXT + 2)])


@operation
async def append_claim_call_and_outcome(database: Database, session: str) -> None:
    claim = Event(seq=NEXT, at=time.time(), body=TurnProgressRecord(state="claimed", epoch=2))
    await database.store.append(session, [claim], epoch=2)
    await database.store.append(session, [model_call(NEXT + 1)], epoch=2)
    outcome = CallOutcome(call=NEXT + 1, status="ok", usage=Usage(input=30, output=4))
    end = Event(seq=NEXT + 2, at=time.time(), body=outcome)
    await database.store.append(session, [end, said(NEXT + 3)], epoch=2)


@operation
async def read_position(database: Database, session: str) -> None:
    assert await database.store.position(session) == EVENTS_PER_SESSION


@operation
async def find_key(database: Database, session: str) -> None:
    assert await database.store.find_key(session, "key-4") == 4


@operation
async def read_events(database: Database, session: str) -> None:
    events = [event async for event in database.store.events(session, ((10, None),))]
    assert len(events) == EVENTS_PER_SESSION - 9


@operation
async def page_of_sessions(database: Database, session: str) -> None:
    assert len(await database.store.sessions(after=session, limit=100)) > 1


@operation
async def forks_of_a_session(database: Database, session: str) -> None:
    await database.store.forks(session)


@operation
async def read_snapshot(database: Database, session: str) -> None:
    assert await database.store.snapshot(session)


@operation
async def checkpoint(database: Database, session: str) -> None:
    await database.store.append(session, [said(NEXT)])
    await database.store.checkpoint(session, Snapshot(seq=NEXT))


@operation
async def last_calls_of_all(database: Database, _: str) -> None:
    query = b"SELECT id, bytes, created_at FROM trimtab.llm_calls ORDER BY created_at DESC LIMIT 20"
    assert len(await database.connections.fetch(query, [])) == 20


@operation
async def calls_of_a_session(database: Database, session: str) -> None:
    query = b"SELECT sum(prompt_tokens) FROM trimtab.llm_calls WHERE session = $1"
    await database.connections.fetch(query, [compute_session_uuid(session)])


@operation
async def context_of_a_session(database: Database, session: str) -> None:
    query = b"SELECT * FROM trimtab.conversation_context WHERE conversation_id = $1"
    assert await database.connections.fetch(query, [compute_session_uuid(session)])


def inbound(session: str, key: str = "posted") -> InboundMessage:
    return InboundMessage(
        session=session,
        message=make_text_message("user", "hello"),
        key=key,
        at=time.time(),
        route=ReplyRoute(channel="phone", address={"number": "1"}),
    )


def reply_to(message: InboundMessage) -> OutboundMessage:
    assert message.route is not None
    key = f"{message.session}-{message.number}"
    return OutboundMessage(
        session=message.session, seq=NEXT, text="hello", route=message.route, key=key
    )


@operation
async def post_take_and_finish(database: Database, session: str) -> None:
    await database.queue.post(inbound(session))
    [*_, message] = await database.queue.pending_after_open_posts(session, limit=100)
    await database.queue.finish_turn(session, 1, [message.number], [reply_to(message)])


@operation
async def messages_of_a_tenant(database: Database, session: str) -> None:
    await database.queue.depth(session.partition("/")[0] + "/")


@operation
async def oldest_message(database: Database, _: str) -> None:
    assert await database.queue.oldest_waiting_at()


@operation
async def deliver_reply(database: Database, _: str) -> None:
    replies = await database.queue.lease_replies(["phone"], limit=16, lease_s=60)
    await database.queue.mark_delivered(replies[0].number)


@operation
async def reserve_and_settle(database: Database, session: str) -> None:
    call = replace(CALL, session=session, tenant=session.partition("/")[0])
    await database.ledger.settle(await database.ledger.reserve(call, CEILINGS), 500)


def name_of(number: int) -> str:
    return f"t{number % TENANTS:06}/helper/s{number:06}"


async def fill(connection: AsyncConnection, sessions: int) -> None:
    """Make the rows. Everything but the ids of sessions is made by the server."""
    copy = "COPY trimtab.sessions (id, name, checkpoint, messages) FROM STDIN"
    async with connection.cursor() as cursor, cursor.copy(copy) as rows:
        for number in range(sessions):
            name = name_of(number)
            position = EVENTS_PER_SESSION
            await rows.write_row((compute_session_uuid(name), name, position, position))
    _, _, kind, _, body = event_to_row_and_blobs(said(_SEQ))[0]
    progress(f"{sessions * EVENTS_PER_SESSION:,} events")
    await connection.execute(
        """INSERT INTO trimtab.events (session, at, seq, kind, key, body)
        SELECT id, 1.8e9, seq, %s, CASE WHEN seq %% 4 = 0 THEN 'key-' || seq END,
            replace(%s, %s, seq::text)
        FROM trimtab.sessions, generate_series(1, %s) AS seq""",
        [kind, body, str(_SEQ), EVENTS_PER_SESSION],
    )
    progress("calls, snapshots, queues, totals")
    await connection.execute(
        """INSERT INTO trimtab.llm_calls (session, seq, bytes, prompt_tokens, status, created_at)
        SELECT id, seq, 1000, 300, 'ok', now() - random() * interval '90 days'
        FROM trimtab.sessions, generate_series(1, %s) AS seq""",
        [CALLS_PER_SESSION],
    )
    snapshot = json.dumps(snapshot_to_json(Snapshot(seq=EVENTS_PER_SESSION)))
    await connection.execute(
        """INSERT INTO trimtab.snapshots (session, seq, body)
        SELECT id, %s, %s FROM trimtab.sessions""",
        [EVENTS_PER_SESSION, snapshot],
    )
    queued = inbound("s")
    await connection.execute("SET search_path = trimtab_queue")
    for statement, values in (
        (
            """INSERT INTO trimtab.inbox (session, key, body)
            SELECT format('t%%s/helper/q%%s', n %% 500, n), 'k', %s
            FROM generate_series(1, %s) n""",
            [encode_inbound_body(queued), QUEUED],
        ),
        (
            """INSERT INTO trimtab.outbox (session, key, channel, body, state)
            SELECT format('t%%s/helper/q%%s', n %% 500, n), 'k' || n, 'phone', %s,
                CASE WHEN n %% 3 = 0 THEN 'waiting' ELSE 'sent' END
            FROM generate_series(1, %s) n""",
            [encode_outbound_body(reply_to(queued)), 3 * QUEUED],
        ),
        (
            """INSERT INTO trimtab.dead SELECT format('t%%s/helper/d%%s', n %% 500, n), 'why', n
            FROM generate_series(1, %s) n""",
            [SMALL_TABLE_ROWS],
        ),
        (
            """INSERT INTO procrastinate_jobs (
                queue_name, task_name, lock, queueing_lock, args)
            SELECT 'turns', 'turn', name, name, '{}'
            FROM (SELECT format('t%%s/helper/q%%s', n %% 500, n) AS name
                FROM generate_series(1, %s) n) AS named""",
            [QUEUED],
        ),
        (
            """INSERT INTO trimtab.spending_per_tenant (day, agent, tenant, micros)
            SELECT (now() AT TIME ZONE 'utc')::date, 'helper', 't' || lpad(n::text, 6, '0'), 5
            FROM generate_series(0, %s) n""",
            [TENANTS - 1],
        ),
        (
            """INSERT INTO trimtab.spending_per_session (session, micros)
            SELECT id, 5 FROM trimtab.sessions""",
            [],
        ),
        (
            """INSERT INTO trimtab.spending_reservations (
                day, agent, tenant, session, counts_for_day, micros, until)
            SELECT (now() AT TIME ZONE 'utc')::date, 'helper', 't', id, true, 5, 1e12
            FROM trimtab.sessions LIMIT %s""",
            [QUEUED],
        ),
    ):
        await connection.execute(statement.encode(), values)
    await connection.execute("VACUUM ANALYZE")


async def read_plans(server: Cluster, database: Database, sessions: Iterator[str]) -> list[Report]:
    """Run each operation and return a row for each statement of it."""
    tables = await database.connections.fetch(
        b"SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples >= $1", [SMALL_TABLE_ROWS]
    )
    large = {name for (name,) in tables}
    rows: list[Report] = []
    for name, work in OPERATIONS.items():
        progress(name)
        await work(database, next(sessions))
        before = server.log.stat().st_size
        await work(database, next(sessions))
        rows += [plan_row(name, ms, plan, large) for ms, plan in logged_plans(server.log, before)]
    return rows


def logged_plans(log: Path, start: int) -> Iterator[tuple[float, Report]]:
    """Yield the time and the plan of each statement since then."""
    with log.open(encoding="utf-8") as lines:
        lines.seek(start)
        text = lines.read()
    for ms, plan in _LOGGED_PLAN.findall(text):
        yield float(ms), json.loads(plan)


def plan_row(name: str, ms: float, logged: Report, large: set[str]) -> Report:
    nodes = [node for node in walk_plan(logged["Plan"]) if node.get("Actual Loops")]
    scans = [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"]
    return {
        "operation": name,
        "statement": " ".join(logged["Query Text"].split())[:60],
        "ms": ms,
        "pages": logged["Plan"]["Shared Hit Blocks"] + logged["Plan"]["Shared Read Blocks"],
        "seq_scans": ", ".join(table for table in scans if table in large),
    }


def walk_plan(node: Report) -> Iterator[Report]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk_plan(child)


async def measure_rate(work: Callable[[int], Awaitable[object]], calls: int) -> float:
    """Return how often in a second it can be done, `AT_ONCE` side by side."""
    numbers = iter(range(calls))

    async def repeat() -> None:
        for number in numbers:
            await work(number)

    begun = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(AT_ONCE)))
    return round(calls / (time.perf_counter() - begun), 1)


async def measure_ceilings(connections: ConnectionPool, sessions: int, calls: int) -> Report:
    ledger = PostgresSpendingLedger(connections)

    async def reserve(number: int) -> None:
        session = name_of(number * 7 % sessions)
        call = replace(CALL, session=session, tenant=f"t{number * 11 % TENANTS:06}")
        await ledger.settle(await ledger.reserve(call, CEILINGS), 500)

    async def update(number: int) -> None:
        async with connections.borrow() as connection:
            query = b"UPDATE counters SET value = value + 1 WHERE number = $1"
            await connection.execute(query, [Int8(number)])

    async with connections.borrow() as connection:
        await connection.execute("CREATE TABLE counters (number int8 PRIMARY KEY, value int8)")
        await connection.execute("INSERT INTO counters SELECT generate_series(0, 99999), 0")
        await connection.execute("CHECKPOINT")
    works: dict[str, Callable[[int], Awaitable[object]]] = {
        "reservations_per_s": reserve,
        "commits_per_s": lambda number: update(number * 7 % 100_000),
        "same_row_commits_per_s": lambda _: update(0),
    }
    for work in works.values():
        await measure_rate(work, AT_ONCE * 4)
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            rates[name].append(await measure_rate(work, calls // ROUNDS))
    pairs = zip(rates["reservations_per_s"], rates["commits_per_s"], strict=True)
    return {
        **{name: median(measured) for name, measured in rates.items()},
        "reservations_ratio": round(median(one / other for one, other in pairs), 2),
    }


async def measure(server: Cluster, sizes: str) -> Report:
    sessions = SESSIONS[sizes]
    await migrate(server.conninfo)
    await migrate_job_queue(server.conninfo)
    async with await AsyncConnection.connect(server.conninfo, autocommit=True) as connection:
        await fill(connection, sessions)
        pool = await ConnectionPool.open(
            server.conninfo, min_size=AT_ONCE, max_size=AT_ONCE, wait=10
        )
        ceilings = await measure_ceilings(pool, sessions, CALLS[sizes])
        await pool.close()
        for name, value in AUTO_EXPLAIN.items():
            await connection.execute(f"ALTER DATABASE postgres SET {name} = '{value}'".encode())
    store = await PostgresStore.connect(server.conninfo, max_size=1)
    queue = await PostgresMessageQueue.connect(server.conninfo, max_size=1)
    connections = await ConnectionPool.open(server.conninfo, min_size=1, max_size=1, wait=10)
    database = Database(
        store=store, queue=queue, ledger=store.spending_ledger(), connections=connections
    )
    rows = await read_plans(server, database, (name_of(number) for number in count(sessions // 2)))
    for opened in (store, queue, connections):
        await opened.close()
    return {
        "events": sessions * EVENTS_PER_SESSION,
        "sessions": sessions,
        "tenants": TENANTS,
        "statements": len(rows),
        "seq_scans": sum(bool(row["seq_scans"]) for row in rows),
        "slowest_ms": max(row["ms"] for row in rows),
        **ceilings,
        "rows": rows,
    }


def main(quick: bool) -> Report:
    found = programs()
    if found is None:
        return {"skipped": "no programs of a PostgreSQL server are installed"}
    with cluster(found) as server:
        report = asyncio.run(measure(server, "quick" if quick else "full"))
    broken = [
        f"{row['operation']} reads all of {row['seq_scans']}: {row['statement']}"
        for row in report["rows"]
        if row["seq_scans"]
    ]
    return {**report, "broken": broken}


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("psycopg",)))
