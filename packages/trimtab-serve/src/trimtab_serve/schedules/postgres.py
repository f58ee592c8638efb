"""Schedules in PostgreSQL. Any worker may run a due schedule, and exactly one does.

One transaction claims a due schedule, posts its messages and sets its next time. If the worker is
killed in between, nothing is done.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, Error

from trimtab.engine.log.event import dump_canonical_json
from trimtab.errors import SessionMoved, StoreError
from trimtab.stores.named_queries import parse_named_queries
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.schedules.access import ScheduleAccess, find_tenant_that_needs_key
from trimtab_serve.schedules.catch_up import DueRunsDecision, decide_due_runs
from trimtab_serve.schedules.protocol import (
    FINISHED_RETENTION_S,
    MAX_RUN_LOG_ENTRIES,
    ScheduleNotPosted,
    TooManySchedules,
)
from trimtab_serve.schedules.schedule import (
    Schedule,
    ScheduleRunLogEntry,
    apply_schedule_change,
    build_run_message,
    corrected_schedule,
    paused_schedule,
    resumed_schedule,
    schedule_from_json,
    schedule_to_json,
)

BorrowConnection = Callable[[], AbstractAsyncContextManager[AsyncConnection]]
"""Borrows a connection of the queue's pool, outside a transaction: `ConnectionPool.borrow`."""
PostInTransaction = Callable[[InboundMessage, AsyncConnection], Awaitable[bool]]
"""Stores a message, and the turn that it requires, in the transaction of a connection."""
ScheduleRow = tuple[Any, ...]

SCHEDULE_QUERIES = parse_named_queries(
    files("trimtab_serve.schedules").joinpath("queries.sql").read_text(encoding="utf-8")
)


class PostgresScheduleStore:
    """The `ScheduleStore` on borrowed connections. It posts messages through them."""

    def __init__(self, borrow_connection: BorrowConnection, post: PostInTransaction) -> None:
        self._borrow_connection = borrow_connection
        self._post = post
        self.access = ScheduleAccess()

    async def upsert(self, schedule: Schedule) -> None:
        async with self._borrow_connection() as connection, connection.transaction():
            cursor = await connection.execute(
                SCHEDULE_QUERIES["insert"], _schedule_to_row(schedule)
            )
            if cursor.rowcount:
                return
            cursor = await connection.execute(SCHEDULE_QUERIES["locked"], [schedule.id])
            for row in await cursor.fetchall():
                was = _schedule_from_row(row)
                now = apply_schedule_change(was, schedule)
                if now != was:
                    await connection.execute(SCHEDULE_QUERIES["change"], _schedule_to_row(now))

    async def add(
        self, schedule: Schedule, *, limit: int, tenant_limit: int | None = None
    ) -> Schedule:
        session = schedule.session
        tenant = schedule.session.partition("/")[0]
        async with self._borrow_connection() as connection, connection.transaction():
            await connection.execute(SCHEDULE_QUERIES["adding"], [tenant])
            cursor = await connection.execute(SCHEDULE_QUERIES["get"], [schedule.id])
            for row in await cursor.fetchall():
                return _schedule_from_row(row)
            await connection.execute(
                SCHEDULE_QUERIES["old"], [session, schedule.created_at - FINISHED_RETENTION_S]
            )
            cursor = await connection.execute(SCHEDULE_QUERIES["count"], [session])
            row = await cursor.fetchone()
            if row is not None and row[0] >= limit:
                raise TooManySchedules(f"session {session!r}", limit)
            if tenant_limit is not None:
                values = [f"{tenant}/", f"{tenant}0", tenant_limit]
                cursor = await connection.execute(SCHEDULE_QUERIES["count_tenant"], values)
                row = await cursor.fetchone()
                if row is not None and row[0] >= tenant_limit:
                    raise TooManySchedules(f"tenant {tenant}", tenant_limit)
            await connection.execute(SCHEDULE_QUERIES["insert"], _schedule_to_row(schedule))
            return schedule

    async def remove(self, schedule_id: str) -> bool:
        async with self._borrow_connection() as connection:
            cursor = await connection.execute(SCHEDULE_QUERIES["remove"], [schedule_id])
            return bool(cursor.rowcount)

    async def pause(self, schedule_id: str) -> bool:
        return await self._change_schedule(schedule_id, paused_schedule)

    async def resume(self, schedule_id: str, now: float) -> bool:
        return await self._change_schedule(schedule_id, lambda was: resumed_schedule(was, now))

    async def correct(self, schedule_id: str, now: float) -> bool:
        return await self._change_schedule(schedule_id, lambda was: corrected_schedule(was, now))

    async def run_now(self, schedule_id: str, now: float) -> bool:
        async with self._borrow_connection() as connection, connection.transaction():
            row = await (
                await connection.execute(SCHEDULE_QUERIES["locked"], [schedule_id])
            ).fetchone()
            if row is None:
                return False
            schedule = _schedule_from_row(row)
            await self._post(build_run_message(schedule, now, now), connection)
            await connection.execute(
                SCHEDULE_QUERIES["move"], [schedule.id, schedule.next_run_at, now]
            )
            await _insert_runs(
                connection,
                schedule.id,
                now,
                [ScheduleRunLogEntry(schedule=schedule.id, due=now, at=now)],
            )
            return True

    async def forget_session(self, session: str) -> None:
        async with self._borrow_connection() as connection:
            await connection.execute(SCHEDULE_QUERIES["forget"], [session])

    async def get(self, schedule_id: str) -> Schedule | None:
        rows = await self._fetch_named("get", [schedule_id])
        return _schedule_from_row(rows[0]) if rows else None

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        return [
            _schedule_from_row(row)
            for row in await self._fetch_named("find", [session, agent, limit])
        ]

    async def list_runs(
        self, *, schedule_id: str | None = None, limit: int = 100
    ) -> list[ScheduleRunLogEntry]:
        rows = await self._fetch_named("runs", [schedule_id, limit])
        return [
            ScheduleRunLogEntry(schedule=one, due=due, at=at, reason=reason, until=until)
            for one, due, at, reason, until in rows
        ]

    async def next_due(
        self, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> float | None:
        rows = await self._fetch_named("next_due", [list(agents), list(excluding)])
        return rows[0][0] if rows else None

    async def run_next_due(
        self, now: float, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> Schedule | None:
        values = [now, list(agents), list(excluding)]
        while True:
            async with self._borrow_connection() as connection, connection.transaction():
                row = await (await connection.execute(SCHEDULE_QUERIES["claim"], values)).fetchone()
                if row is None:
                    return None
                schedule = _schedule_from_row(row)
                try:
                    denial = await self._decide_to_skip(connection, schedule, now)
                    verdict = denial or decide_due_runs(schedule, now)
                    for due in verdict.due_times:
                        await self._post(build_run_message(schedule, due, now), connection)
                except SessionMoved as error:
                    raise ScheduleNotPosted(schedule.id, error) from error
                except (StoreError, Error):
                    raise
                except Exception as error:
                    raise ScheduleNotPosted(schedule.id, error) from error
                change = [schedule.id, verdict.next_run_at, now]
                await connection.execute(SCHEDULE_QUERIES["move"], change)
                await _insert_runs(
                    connection, schedule.id, now, verdict.build_run_log(schedule, now)
                )
            if denial is None:
                return schedule

    async def close(self) -> None:
        """Do nothing, because the connections are borrowed."""

    async def _decide_to_skip(
        self, connection: AsyncConnection, schedule: Schedule, now: float
    ) -> DueRunsDecision | None:
        """Return the decision to skip a schedule of a tenant. None if it may run."""
        tenant = find_tenant_that_needs_key(schedule)
        if tenant is None:
            return None
        values = [tenant, schedule.agent, now]
        row = await (await connection.execute(SCHEDULE_QUERIES["has_key"], values)).fetchone()
        has_key = row is not None and row[0]
        return self.access.decide(tenant, schedule, now, has_key=has_key)

    async def _change_schedule(
        self, schedule_id: str, change: Callable[[Schedule], Schedule]
    ) -> bool:
        async with self._borrow_connection() as connection, connection.transaction():
            row = await (
                await connection.execute(SCHEDULE_QUERIES["locked"], [schedule_id])
            ).fetchone()
            if row is not None:
                await connection.execute(
                    SCHEDULE_QUERIES["change"], _schedule_to_row(change(_schedule_from_row(row)))
                )
            return row is not None

    async def _fetch_named(self, query_name: str, parameters: Sequence[Any]) -> list[ScheduleRow]:
        async with self._borrow_connection() as connection:
            return await (
                await connection.execute(SCHEDULE_QUERIES[query_name], parameters)
            ).fetchall()


async def _insert_runs(
    connection: AsyncConnection, schedule_id: str, now: float, runs: list[ScheduleRunLogEntry]
) -> None:
    due = [run.due for run in runs]
    reasons = [run.reason for run in runs]
    until = [run.until for run in runs]
    await connection.execute(SCHEDULE_QUERIES["log"], [schedule_id, due, now, reasons, until])
    await connection.execute(SCHEDULE_QUERIES["shorten"], [schedule_id, MAX_RUN_LOG_ENTRIES])


def _schedule_to_row(schedule: Schedule) -> list[Any]:
    body = dump_canonical_json(schedule_to_json(schedule))
    one = schedule
    return [one.id, one.session, one.agent, one.origin, body, one.next_run_at, one.paused]


def _schedule_from_row(row: ScheduleRow) -> Schedule:
    body, next_run_at = row
    return schedule_from_json({**json.loads(body), "next_run_at": next_run_at})
