"""A database with its sessions, as a process that serves it sees them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.serve.queue.queues import inbound, keys, reply
from tests.serve.schedules.places import schedule
from trimtab.engine.log.message import make_text_message
from trimtab.errors import SessionMoved
from trimtab.session import Session
from trimtab.session.recorder import SessionRecorder
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.escaping import compute_session_uuid
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.shards.session_rows import list_session_tables, sum_rows

ONE = "acme/helper/one"


@dataclass
class Shard:
    conninfo: str
    store: PostgresStore
    queue: PostgresMessageQueue

    async def fill(self, session: str = ONE) -> None:
        """A session with rows in every table."""
        open_session = await Session.create(self.store, session, model="gpt-4o")
        await SessionRecorder(open_session).claim()
        await open_session.add(make_text_message("user", "long " + "x" * 30_000), key="first")
        await SessionRecorder(open_session).checkpoint()
        await open_session.add(make_text_message("user", "after the checkpoint"))
        epoch = open_session.window.accounting.epoch
        for key in ("a", "b", "c"):
            await self.queue.post(inbound(key, session=session))
        await self.queue.finish_turn(
            session, epoch, [], [reply(f"{session}/m{n}", session=session) for n in (1, 2)]
        )
        one = schedule(when="*/10 * * * *", now=0.0, session=session, origin="tool")
        schedules = self.schedules()
        await schedules.upsert(one)
        await schedules.run_now(one.id, 1.0)
        key = compute_session_uuid(session)
        call = "(session, seq, bytes, status, created_at) VALUES ($1, 2, 3, 'sent', now())"
        await self.execute(f"INSERT INTO trimtab.llm_calls {call}", key)
        await self.execute("INSERT INTO trimtab.spending_per_session VALUES ($1, 17)", key)
        usage = "(session, name, tenant, event_bytes, counted, bytes) VALUES ($1, $2, $3, 1, 1, 1)"
        tenant = session.partition("/")[0]
        await self.execute(f"INSERT INTO trimtab.session_usage {usage}", key, session, tenant)
        await self.execute("INSERT INTO trimtab.dead VALUES ($1, 'broken', 1)", session)

    def schedules(self) -> ScheduleStore:
        return ScheduleStore(self.queue.transactions)

    async def execute(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self.queue.borrow_connection() as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def sums(self, session: str = ONE) -> dict[str, tuple[int, int]]:
        async with self.queue.borrow_connection() as connection:
            tables = await list_session_tables(connection, session)
            sums = await sum_rows(connection, tables)
            return {name: both for name, both in sums.items() if name != "sessions"}

    async def jobs(self) -> list[str]:
        manager = self.queue.job_queue.app.job_manager
        return [str(job.lock) for job in await manager.list_jobs_async()]

    async def answers(self, key: str, session: str = ONE) -> str:
        """What a reader and a message get here: `taken`, `moving`, or the name of a database."""
        answers: set[str] = set()
        for attempt in (
            self.store.position(session),
            self.queue.post(inbound(key, session=session)),
        ):
            try:
                await attempt
            except SessionMoved as refusal:
                answers.add(refusal.shard or "moving")
            else:
                answers.add("taken")
        return " and ".join(sorted(answers))

    async def waiting(self, session: str = ONE) -> list[str]:
        return await keys(self.queue, session)


@asynccontextmanager
async def opened(conninfo: str) -> AsyncGenerator[Shard]:
    store = await PostgresStore.connect(conninfo)
    queue = await PostgresMessageQueue.connect(conninfo)
    try:
        yield Shard(conninfo, store, queue)
    finally:
        await queue.close()
        await store.close()
