"""What one served turn costs, on files and on PostgreSQL. `docs/operate.md` sizes by it.

    python -m benchmarks.turn_footprint [--quick] [--json]

Sessions are served as `trimtab serve` does, by one process: a message is posted, its turn runs, the
reply is written to the outbox and delivered. A turn is a question of about 300 characters, a
reply that calls two tools side by side, their results of about 1,000 characters each, and an answer
of 60 words. The model is the simulator in a process of its own, through Anthropic's SDK.

events, log_bytes   of the session's log, for one turn: as they are stored, in canonical JSON
disk_bytes          on files: what the folder has grown by; on PostgreSQL: tables and indexes,
                    both times behind a vacuum
index_bytes         of that, the indexes
syncs               on files: calls that wait for the disk; on PostgreSQL: commits that wrote
wal_bytes           write-ahead log of our transactions, full-page images left out, and with them
worker_ms           CPU of the process that serves, the SDK included, in the fastest round
server_ms           CPU of the backends that serve us; checkpoints and the like are nobody's
connections         to the server, of this one process
turns_s             turns in a second, so many at once; both cores are shared with the simulator
process_mb          memory of the process before its first turn, as the system has it
open_kb             memory of a session that is open, by Python's own count, after all its turns

What is measured is the second part of the run; the first warms up. The spread is over rounds.
All must be answered.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

from benchmarks.harness import Report, progress, run
from benchmarks.simulated import tool, user_text
from benchmarks.store_places import Files, Postgres, no_server, place
from trimtab.engine.log.event import dump_event_line
from trimtab.engine.log.message import make_text_message
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.retries import with_retries
from trimtab.session import Session
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.stores.files import FileStore
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing.server import spawn_simulated_provider
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.process.worker_pool import WorkerPool
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.sqlite.database import SqliteDatabase
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

SIZES = """
SELECT sum(pg_total_relation_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname IN ('trimtab', 'trimtab_queue') AND relkind = 'r'
"""
CLIENTS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> %s
"""
WAL = """
WITH records AS MATERIALIZED (
    SELECT xid::text AS x, record_length AS bytes, fpi_length AS images,
           record_type LIKE 'COMMIT%%' AS commits,
           block_ref LIKE '%%/' || (SELECT oid FROM pg_database WHERE datname = current_database())
                          || '/%%' AS ours
    FROM pg_get_wal_records_info(%s::pg_lsn, %s::pg_lsn)
), mine AS (SELECT DISTINCT x FROM records WHERE ours AND x <> '0')
SELECT sum(bytes - images)::bigint, sum(bytes)::bigint, count(*) FILTER (WHERE commits)
FROM records WHERE ours OR x IN (SELECT x FROM mine)
"""


class Backends:
    """The server's side: sizes, write-ahead log, and CPU of the backends that serve us."""

    def __init__(self, conninfo: str) -> None:
        self._own = psycopg.connect(conninfo, autocommit=True)
        self._seconds: dict[int, float] = {}
        self._kept = self._keep_wal()

    def _keep_wal(self) -> bool:
        """Keep the write-ahead log until this connection ends; False where we may not look."""
        slot = f"footprint_{self._own.info.backend_pid}"
        try:
            self._own.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            query = "SELECT pg_create_physical_replication_slot(%s, true, true)"
            self._own.execute(query, [slot])
        except psycopg.Error:
            return False
        return True

    def look(self) -> dict[str, float]:
        """Sizes are those behind a vacuum: what died, and pages taken in advance, are no one's."""
        before = self._position()
        for (pid,) in self._own.execute(CLIENTS, [self._own.info.backend_pid]):
            if (seconds := cpu_of(pid)) is not None:
                self._seconds[pid] = seconds
        self._own.execute("VACUUM")
        disk, indexes = self._row(SIZES)
        return {
            "disk": disk,
            "indexes": indexes,
            "wal_before": before,
            "wal_behind": self._position(),
            "server": sum(self._seconds.values()),
            "connections": len(self._seconds),
        }

    def wal(self, begin: float, end: float) -> list[float] | None:
        """Bytes of ours between two positions, without and with full-page images, and commits;
        None where the server does not let us look."""
        if not self._kept:
            return None
        return [float(count) for count in self._row(WAL, [lsn(begin), lsn(end)])]

    def _position(self) -> float:
        """Of the write-ahead log, in bytes since its beginning."""
        return float(self._row("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0])

    def close(self) -> None:
        self._own.close()

    def _row(self, query: str, values: list[Any] | None = None) -> tuple[Any, ...]:
        row = self._own.execute(query.encode(), values).fetchone()
        assert row is not None
        return row


def lsn(position: float) -> str:
    return f"{int(position) >> 32:X}/{int(position) & 0xFFFFFFFF:X}"


def cpu_of(pid: int) -> float | None:
    """Seconds that a process of this machine has run; None where it is on another."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError):
        return None


MODEL = "claude-sonnet-4-6"
SESSIONS = {"full": 64, "quick": 16}
ROUNDS = {"full": 8, "quick": 4}
"""Each session has one turn in each; the first two warm up."""
WARM = 2
AT_ONCE = 16
STEPS = [{"calls": [{"name": "read_file", "arguments": {"path": "a"}}] * 2}, {"text": 60}]
Agents = Callable[[Any], dict[str, Agent]]
"""Who is served, from their store."""
ROUTE = ReplyRoute(channel="phone", address={"number": 7})


@dataclass(slots=True, kw_only=True)
class Served:
    """What is served, and how it is looked at from outside."""

    service: AgentService
    gauge: Callable[[], Awaitable[dict[str, float]]]
    """What it has cost so far, by name."""
    wal: Callable[[float, float], list[float] | None] | None = None
    """What stands in the write-ahead log between two positions: see `Backends.wal`."""


async def gives(asked: ToolInvocation) -> str:
    return f"{asked.key}\n" + "A line of what was found there, as long as most lines are.\n" * 16


def tools() -> list[Tool]:
    return [Tool(definition=tool("read_file").definition, run=gives)]


@asynccontextmanager
async def on_files(
    where: Files, agents: Callable[[Any], dict[str, Agent]]
) -> AsyncGenerator[Served]:
    store = FileStore(where.root)
    queue = await SqliteMessageQueue.open(store)
    service = AgentService(
        agents=agents(store), store=store, queue=queue, event_bus=LocalEventBus()
    )
    turns = LocalTurnRunner(service, max_turns=AT_ONCE)
    queue.on_posted = turns.request_turn

    syncs = 0

    def counting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            nonlocal syncs
            syncs += 1
            sync(descriptor)

        return counted

    commit = SqliteDatabase._commit  # noqa: SLF001 - SQLite syncs in it

    def counted_commit(database: SqliteDatabase) -> None:
        nonlocal syncs
        syncs += 1
        commit(database)

    async def gauge() -> dict[str, float]:
        return {"disk": folder_bytes(where.root), "syncs": syncs}

    try:
        with (
            patch.object(SqliteDatabase, "_commit", counted_commit),
            patch("os.fsync", counting(os.fsync)),
            patch("os.fdatasync", counting(os.fdatasync)),
        ):
            yield Served(service=service, gauge=gauge)
    finally:
        await turns.drain(10)
        await service.close()
        await store.close()


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@asynccontextmanager
async def on_postgres(where: Postgres, agents: Agents) -> AsyncGenerator[Served]:
    await migrate(where.conninfo)
    await migrate_job_queue(where.conninfo)
    store = await PostgresStore.connect(where.conninfo)
    queue = await PostgresMessageQueue.connect(where.conninfo)
    service = AgentService(
        agents=agents(store), store=store, queue=queue, event_bus=LocalEventBus()
    )
    fleet = WorkerPool(service, queue, max_turns=AT_ONCE)
    running = asyncio.create_task(fleet.run())
    backends = Backends(where.conninfo)

    async def gauge() -> dict[str, float]:
        return await asyncio.to_thread(backends.look)

    try:
        yield Served(service=service, gauge=gauge, wal=backends.wal)
    finally:
        await fleet.drain(10)
        await running
        await service.close()
        await store.close()
        backends.close()


def session_name(number: int) -> str:
    return f"default/helper/s{number}"


async def one_round(served: Served, number: int, sessions: int, phone: Phone) -> int:
    """One turn of every session; returns how many replies have left so far."""
    service = served.service
    for session in range(sessions):
        # On one line: by it the simulator tells turns apart.
        said = " ".join(user_text(session * 100 + number)[:300].split())
        words = f"simulate: {json.dumps(STEPS)} {said}"
        await service.post(
            InboundMessage(
                session=session_name(session),
                message=make_text_message("user", words),
                key=f"k{number}",
                at=time.time(),
                route=ROUTE,
            )
        )
    return await phone.heard((number + 1) * sessions)


class Phone:
    """A channel through which replies leave, and are counted."""

    def __init__(self) -> None:
        self._count = 0
        self._all = asyncio.Event()
        self._wanted = 0

    async def deliver(self, _: OutboundMessage) -> None:
        self._count += 1
        if self._count >= self._wanted:
            self._all.set()

    async def heard(self, wanted: int) -> int:
        """Wait until so many have left, all in all; returns how many."""
        self._wanted = wanted
        if self._count < wanted:
            self._all.clear()
            async with asyncio.timeout(300):
                await self._all.wait()
        return self._count


@asynccontextmanager
async def delivering(service: AgentService) -> AsyncGenerator[Phone]:
    phone = Phone()
    delivery = ReplyDelivery(service.queue, {"phone": phone.deliver})
    if isinstance(service.queue, SqliteMessageQueue):
        service.queue.on_replies = delivery.wake
    running = asyncio.create_task(delivery.run())
    try:
        yield phone
    finally:
        running.cancel()
        await asyncio.wait([running])


async def logs_of(service: AgentService, sessions: int) -> tuple[int, int]:
    """Events and bytes of all sessions' logs."""
    sizes = [
        len(dump_event_line(event).encode())
        for number in range(sessions)
        async for event in service.store.events(session_name(number))
    ]
    return len(sizes), sum(sizes)


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def open_bytes(service: AgentService, sessions: int) -> float:
    """Python's own count of what one open session holds."""
    await service.sessions.close()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    held = [await Session.open(service.store, session_name(n)) for n in range(sessions)]
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / len(held)


async def measured(served: Served, size: str, phone: Phone) -> tuple[Report, list[str]]:
    sessions, rounds = SESSIONS[size], ROUNDS[size]
    answered, cpu, took, looks = 0, list[float](), list[float](), list[dict[str, float]]()
    logs: list[tuple[int, int]] = []
    own = resident()
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        if number == WARM:
            looks.append(await served.gauge())
            logs.append(await logs_of(served.service, sessions))
        begun, used = time.perf_counter(), time.process_time()
        answered = await one_round(served, number, sessions, phone)
        if number >= WARM:
            cpu.append((time.process_time() - used) / sessions * 1e3)
            took.append(time.perf_counter() - begun)
    looks.append(await served.gauge())
    logs.append(await logs_of(served.service, sessions))
    turns = sessions * (rounds - WARM)
    first, last = looks
    grown = {name: (last[name] - first[name]) / turns for name in last}
    events, stored = ((after - before) / turns for before, after in zip(*logs, strict=True))
    found: Report = {
        "events": round(events, 1),
        "log_bytes": round(stored),
        "disk_bytes": round(grown["disk"]),
        "index_bytes": round(grown["indexes"]) if "indexes" in grown else "",
        "syncs": round(grown["syncs"], 1) if "syncs" in grown else "",
        "wal_bytes": "",
        "wal_with_images": "",
        "worker_ms": round(min(cpu), 2),
        "spread": f"{min(cpu):.2f}–{max(cpu):.2f}",
        "server_ms": round(grown["server"] * 1e3, 2) if grown.get("server") else "",
        "connections": int(last.get("connections", 0)),
        "turns_s": round(sessions / statistics.median(took), 1),
        "process_mb": round(own / 1e6),
        "open_kb": round(await open_bytes(served.service, sessions) / 1024, 1),
    }
    if served.wal is not None:
        wal = await asyncio.to_thread(served.wal, first["wal_behind"], last["wal_before"])
        if wal is not None:
            found["wal_bytes"], found["wal_with_images"] = (round(w / turns) for w in wal[:2])
            found["syncs"] = round(wal[2] / turns, 1)
    broken = (
        [] if answered == sessions * rounds else [f"{answered} of {sessions * rounds} answered"]
    )
    return found, broken


async def measure(store: str, size: str, url: str) -> tuple[Report, list[str]]:
    provider = with_retries(AnthropicProvider(api_key="benchmark", base_url=url))

    def agents(kept: Any) -> dict[str, Agent]:
        told = {"name": "helper", "model": {"name": MODEL}, "session": {"debounce": 0}}
        spec = AgentSpec.model_validate(told)
        made = Agent(
            spec=spec, system="Help.", store=kept, provider=provider, tools=tools(), environ={}
        )
        return {"helper": made}

    with place(store) as where:
        if isinstance(where, Files):
            opened = on_files(where, agents)
        else:
            assert isinstance(where, Postgres)
            opened = on_postgres(where, agents)
        async with opened as served, delivering(served.service) as phone:
            found, broken = await measured(served, size, phone)
    await provider.close()
    return {"store": store, **found}, broken


def main(quick: bool) -> Report:
    size = "quick" if quick else "full"
    missing = no_server()
    rows: list[Report] = []
    broken: list[str] = []
    with spawn_simulated_provider(keeps=False) as remote:
        for store in ("files", "postgres"):
            if store == "postgres" and missing is not None:
                print(f"skipped: {missing}", file=sys.stderr)
                continue
            row, wrong = asyncio.run(measure(store, size, remote.url))
            rows.append(row)
            broken += [f"{store}: {each}" for each in wrong]
    turns = SESSIONS[size] * (ROUNDS[size] - WARM)
    return {
        "sample": f"{turns} turns of {SESSIONS[size]} sessions, {AT_ONCE} at once",
        "rows": rows,
        "broken": broken,
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("anthropic", "psycopg", "procrastinate")))
