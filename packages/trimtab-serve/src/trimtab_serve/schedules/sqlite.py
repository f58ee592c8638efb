"""Schedules of one machine, in the database of the queue.

One transaction posts a due run and sets its next time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from sqlite3 import Connection, Error
from typing import Any

from trimtab.engine.log.event import dump_canonical_json
from trimtab.errors import StoreError
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.sqlite.queries import (
    SQLITE_QUERIES,
    compute_name_range,
    decode_name,
    encode_list,
    encode_name,
)
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
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


def schedule_to_row(schedule: Schedule) -> list[Any]:
    """Return the columns of a schedule."""
    names = [schedule.id, schedule.session, schedule.agent]
    body = dump_canonical_json(schedule_to_json(schedule))
    rest = [schedule.origin, body, schedule.next_run_at, schedule.paused]
    return [*map(encode_name, names), *rest]


def schedule_from_row(row: tuple[Any, ...]) -> Schedule:
    """Return the schedule of a row: its body and next time."""
    body, next_run_at = row
    return schedule_from_json({**json.loads(body), "next_run_at": next_run_at})


def run_from_row(row: tuple[Any, ...]) -> ScheduleRunLogEntry:
    """Return the run log entry of a row."""
    schedule, due, at, reason, until = row
    return ScheduleRunLogEntry(
        schedule=decode_name(schedule), due=due, at=at, reason=decode_name(reason), until=until
    )


def get_schedule(connection: Connection, schedule_id: str) -> Schedule | None:
    """Return the schedule with this id."""
    values = [encode_name(schedule_id)]
    row = connection.execute(SQLITE_QUERIES["get_schedule"], values).fetchone()
    return None if row is None else schedule_from_row(row)


def write_schedule(connection: Connection, schedule: Schedule) -> None:
    """Add a schedule, or replace the one with this id."""
    connection.execute(SQLITE_QUERIES["write_schedule"], schedule_to_row(schedule))


def move_schedule(
    connection: Connection,
    schedule_id: str,
    next_run_at: float | None,
    runs: Sequence[ScheduleRunLogEntry],
) -> None:
    """Set the next time of a schedule, and record the runs that were due."""
    name = encode_name(schedule_id)
    last = max((run.at for run in runs), default=None)
    connection.execute(SQLITE_QUERIES["move_schedule"], [name, next_run_at, last])
    for run in runs:
        values = [name, run.due, run.at, encode_name(run.reason), run.until]
        connection.execute(SQLITE_QUERIES["log_run"], values)
    connection.execute(SQLITE_QUERIES["shorten_runs"], [name, MAX_RUN_LOG_ENTRIES])


def remove_schedule(connection: Connection, schedule_id: str) -> bool:
    """Remove a schedule with its run log. Return False if it does not exist."""
    values = [encode_name(schedule_id)]
    return bool(connection.execute(SQLITE_QUERIES["remove_schedule"], values).rowcount)


class SqliteScheduleStore:
    """The `ScheduleStore` that shares the database of a queue. It does not close the queue."""

    def __init__(self, queue: SqliteMessageQueue) -> None:
        self._queue = queue
        self._database = queue.database
        self.access = ScheduleAccess()

    async def upsert(self, schedule: Schedule) -> None:
        def put(connection: Connection) -> None:
            was = get_schedule(connection, schedule.id)
            now = schedule if was is None else apply_schedule_change(was, schedule)
            if now != was:
                write_schedule(connection, now)

        await self._database.write(put)

    async def add(
        self, schedule: Schedule, *, limit: int, tenant_limit: int | None = None
    ) -> Schedule:
        tenant = schedule.session.partition("/")[0]

        def add(connection: Connection) -> Schedule:
            if (same_schedule := get_schedule(connection, schedule.id)) is not None:
                return same_schedule
            session = [encode_name(schedule.session)]
            (count,) = connection.execute(SQLITE_QUERIES["count_schedules"], session).fetchone()
            if count >= limit:
                raise TooManySchedules(f"session {schedule.session!r}", limit)
            if tenant_limit is not None:
                values = [*compute_name_range(f"{tenant}/"), tenant_limit]
                sql = SQLITE_QUERIES["count_tenant_schedules"]
                (count,) = connection.execute(sql, values).fetchone()
                if count >= tenant_limit:
                    raise TooManySchedules(f"tenant {tenant}", tenant_limit)
            before = [schedule.created_at - FINISHED_RETENTION_S]
            connection.execute(SQLITE_QUERIES["remove_expired_schedules"], before)
            write_schedule(connection, schedule)
            return schedule

        return await self._database.write(add)

    async def remove(self, schedule_id: str) -> bool:
        return await self._database.write(
            lambda connection: remove_schedule(connection, schedule_id), erases=True
        )

    async def pause(self, schedule_id: str) -> bool:
        return await self._change_schedule(schedule_id, paused_schedule)

    async def resume(self, schedule_id: str, now: float) -> bool:
        return await self._change_schedule(schedule_id, lambda was: resumed_schedule(was, now))

    async def correct(self, schedule_id: str, now: float) -> bool:
        return await self._change_schedule(schedule_id, lambda was: corrected_schedule(was, now))

    async def run_now(self, schedule_id: str, now: float) -> bool:
        while (schedule := await self.get(schedule_id)) is not None:
            run = ScheduleRunLogEntry(schedule=schedule.id, due=now, at=now)
            messages = [build_run_message(schedule, now, now)]
            if await self._run(schedule, messages, schedule.next_run_at, [run]):
                return True
        return False

    async def forget_session(self, session: str) -> None:
        def forget(connection: Connection) -> None:
            connection.execute(SQLITE_QUERIES["forget_schedules"], [encode_name(session)])

        await self._database.write(forget, erases=True)

    async def get(self, schedule_id: str) -> Schedule | None:
        return await self._database.read(lambda reader: get_schedule(reader, schedule_id))

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        names = [None if name is None else encode_name(name) for name in (session, agent)]
        return [schedule_from_row(row) for row in await self._scan("find_schedules", *names, limit)]

    async def list_runs(
        self, *, schedule_id: str | None = None, limit: int = 100
    ) -> list[ScheduleRunLogEntry]:
        name = None if schedule_id is None else encode_name(schedule_id)
        return [run_from_row(row) for row in await self._scan("schedule_runs", name, limit)]

    async def next_due(
        self, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> float | None:
        rows = await self._fetch("next_due", encode_list(agents), encode_list(excluding))
        return rows[0][1] if rows else None

    async def run_next_due(
        self, now: float, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> Schedule | None:
        while True:
            rows = await self._fetch("next_due", encode_list(agents), encode_list(excluding))
            if not rows or rows[0][1] > now:
                return None
            schedule = schedule_from_row(rows[0])
            try:
                denial = await self._decide_to_skip(schedule, now)
                verdict = denial or decide_due_runs(schedule, now)
                messages = [build_run_message(schedule, due, now) for due in verdict.due_times]
                runs = verdict.build_run_log(schedule, now)
                ran = await self._run(schedule, messages, verdict.next_run_at, runs)
                if ran and denial is None:
                    return schedule
            except (StoreError, Error):
                raise
            except Exception as error:
                raise ScheduleNotPosted(schedule.id, error) from error

    async def close(self) -> None:
        """Do nothing, because the database belongs to the queue."""

    async def _run(
        self,
        schedule: Schedule,
        messages: Sequence[InboundMessage],
        next_run_at: float | None,
        runs: Sequence[ScheduleRunLogEntry],
    ) -> bool:
        """Post the message of a schedule and record the run.

        Return False and change nothing if the schedule was changed meanwhile.
        """
        # A clock that was set back, or a restored backup, may make an answered run due again.
        new = [one for one in messages if not await self._queue.is_in_log(one)]

        def run(connection: Connection) -> bool:
            if get_schedule(connection, schedule.id) != schedule:
                return False
            for message in new:
                self._queue.post_in_transaction(connection, message)
            move_schedule(connection, schedule.id, next_run_at, runs)
            return True

        return await self._database.write(
            run, then=lambda ran: self._queue.on_posted(schedule.session) if ran and new else None
        )

    async def _decide_to_skip(self, schedule: Schedule, now: float) -> DueRunsDecision | None:
        """Return the decision to skip a schedule of a tenant. None if it may run."""
        tenant = find_tenant_that_needs_key(schedule)
        if tenant is None:
            return None
        has_key = bool(await self._fetch("has_api_key", tenant, schedule.agent, now))
        return self.access.decide(tenant, schedule, now, has_key=has_key)

    async def _change_schedule(
        self, schedule_id: str, change: Callable[[Schedule], Schedule]
    ) -> bool:
        def put(connection: Connection) -> bool:
            was = get_schedule(connection, schedule_id)
            if was is not None:
                write_schedule(connection, change(was))
            return was is not None

        return await self._database.write(put)

    async def _fetch(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        sql = SQLITE_QUERIES[query_name]
        return await self._database.read(lambda reader: reader.execute(sql, values).fetchall())

    async def _scan(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        sql = SQLITE_QUERIES[query_name]
        return await self._database.scan(lambda reader: reader.execute(sql, values).fetchall())
