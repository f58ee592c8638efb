"""Schedules in PostgreSQL: any worker may run what is due, and one does.

A due schedule is claimed, its letters posted and its next time set in one transaction: whoever is
ended in between has done nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, Error

from trimtab.core.event import canonical
from trimtab.stores.errors import StoreError
from trimtab.stores.postgres.queries import named
from trimtab.worker.letters import Inbound
from trimtab.worker.schedules.missed import judge
from trimtab.worker.schedules.schedule import (
    Run,
    Schedule,
    changed,
    letter,
    paused,
    resumed,
    schedule_from_json,
    schedule_to_json,
)
from trimtab.worker.schedules.schedules import DONE, RUNS, CannotRun, TooMany

Lend = Callable[[], AbstractAsyncContextManager[AsyncConnection]]
"""A connection of the mail's pool, out of a transaction: `Connections.borrow`."""
Post = Callable[[Inbound, AsyncConnection], Awaitable[bool]]
"""Keeps a letter, and the turn that is due by it, within the transaction of a connection."""
Row = tuple[Any, ...]

QUERIES = named(
    files("trimtab.worker.schedules").joinpath("queries.sql").read_text(encoding="utf-8")
)


class PostgresSchedules:
    """On connections that are lent, and letters that are posted through them."""

    def __init__(self, lend: Lend, post: Post) -> None:
        self._lend = lend
        self._post = post

    async def keep(self, schedule: Schedule) -> None:
        async with self._lend() as connection, connection.transaction():
            cursor = await connection.execute(QUERIES["insert"], _row(schedule))
            if cursor.rowcount:
                return
            cursor = await connection.execute(QUERIES["locked"], [schedule.id])
            for row in await cursor.fetchall():
                was = _schedule(row)
                now = changed(was, schedule)
                if now != was:
                    await connection.execute(QUERIES["change"], _row(now))

    async def add(self, schedule: Schedule, *, most: int) -> Schedule:
        session = schedule.session
        async with self._lend() as connection, connection.transaction():
            await connection.execute(QUERIES["adding"], [session])
            cursor = await connection.execute(QUERIES["get"], [schedule.id])
            for row in await cursor.fetchall():
                return _schedule(row)
            await connection.execute(QUERIES["old"], [session, schedule.created_at - DONE])
            cursor = await connection.execute(QUERIES["count"], [session])
            row = await cursor.fetchone()
            if row is not None and row[0] >= most:
                raise TooMany(session, most)
            await connection.execute(QUERIES["insert"], _row(schedule))
            return schedule

    async def remove(self, schedule: str) -> bool:
        async with self._lend() as connection:
            cursor = await connection.execute(QUERIES["remove"], [schedule])
            return bool(cursor.rowcount)

    async def pause(self, schedule: str) -> bool:
        return await self._changed(schedule, paused)

    async def resume(self, schedule: str, now: float) -> bool:
        return await self._changed(schedule, lambda was: resumed(was, now))

    async def run_now(self, schedule: str, now: float) -> bool:
        async with self._lend() as connection, connection.transaction():
            row = await (await connection.execute(QUERIES["locked"], [schedule])).fetchone()
            if row is None:
                return False
            found = _schedule(row)
            await self._post(letter(found, now, now), connection)
            await connection.execute(QUERIES["move"], [found.id, found.next_run_at, now])
            await _log(connection, found.id, now, [Run(schedule=found.id, due=now, at=now)])
            return True

    async def forget(self, session: str) -> None:
        async with self._lend() as connection:
            await connection.execute(QUERIES["forget"], [session])

    async def get(self, schedule: str) -> Schedule | None:
        rows = await self._rows("get", [schedule])
        return _schedule(rows[0]) if rows else None

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        return [_schedule(row) for row in await self._rows("find", [session, agent, limit])]

    async def runs(self, *, schedule: str | None = None, limit: int = 100) -> list[Run]:
        rows = await self._rows("runs", [schedule, limit])
        return [
            Run(schedule=one, due=due, at=at, why=why, until=until)
            for one, due, at, why, until in rows
        ]

    async def next_due(
        self, agents: Collection[str], *, without: Collection[str] = ()
    ) -> float | None:
        rows = await self._rows("next_due", [list(agents), list(without)])
        return rows[0][0] if rows else None

    async def run_next(
        self, now: float, agents: Collection[str], *, without: Collection[str] = ()
    ) -> Schedule | None:
        async with self._lend() as connection, connection.transaction():
            asked = [now, list(agents), list(without)]
            row = await (await connection.execute(QUERIES["claim"], asked)).fetchone()
            if row is None:
                return None
            found = _schedule(row)
            try:
                verdict = judge(found, now)
                for due in verdict.due:
                    await self._post(letter(found, due, now), connection)
            except (StoreError, Error):
                raise
            except Exception as error:
                raise CannotRun(found.id, error) from error
            await connection.execute(QUERIES["move"], [found.id, verdict.next_run_at, now])
            await _log(connection, found.id, now, verdict.runs(found, now))
            return found

    async def close(self) -> None:
        """Nothing is held: the connections are lent."""

    async def _changed(self, schedule: str, change: Callable[[Schedule], Schedule]) -> bool:
        async with self._lend() as connection, connection.transaction():
            row = await (await connection.execute(QUERIES["locked"], [schedule])).fetchone()
            if row is not None:
                await connection.execute(QUERIES["change"], _row(change(_schedule(row))))
            return row is not None

    async def _rows(self, query: str, parameters: Sequence[Any]) -> list[Row]:
        async with self._lend() as connection:
            return await (await connection.execute(QUERIES[query], parameters)).fetchall()


async def _log(connection: AsyncConnection, schedule: str, now: float, runs: list[Run]) -> None:
    due, why = [run.due for run in runs], [run.why for run in runs]
    until = [run.until for run in runs]
    await connection.execute(QUERIES["log"], [schedule, due, now, why, until])
    await connection.execute(QUERIES["shorten"], [schedule, RUNS])


def _row(schedule: Schedule) -> list[Any]:
    body = canonical(schedule_to_json(schedule))
    one = schedule
    return [one.id, one.session, one.agent, one.origin, body, one.next_run_at, one.paused]


def _schedule(row: Row) -> Schedule:
    body, next_run_at = row
    return schedule_from_json({**json.loads(body), "next_run_at": next_run_at})
