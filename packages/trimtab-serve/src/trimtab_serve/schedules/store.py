"""Schedules in the database of a queue. Each due run becomes one message, exactly once.

One transaction claims a due schedule, posts its messages and sets its next time. If the process is
killed in between, nothing is done. Any process may run a due schedule, and exactly one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from importlib.resources import files
from typing import Any, Literal

from trimtab.engine.log.event import dump_canonical_json
from trimtab.errors import StoreError, TrimtabError
from trimtab.stores.named_queries import split_named_queries
from trimtab_serve.queue.transactions import Transaction, Transactions
from trimtab_serve.schedules.access import ScheduleAccess, find_tenant_that_needs_key
from trimtab_serve.schedules.catch_up import DueRunsDecision, decide_due_runs
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

ScheduleVerb = Literal["pause", "resume", "run-now", "remove"]
MAX_RUN_LOG_ENTRIES = 100
"""Number of run log entries that are kept for one schedule, the newest ones."""
FINISHED_RETENTION_S = 7 * 86_400.0
"""Seconds for which a finished schedule of a tool is kept.

A tool call that is repeated after a crash finds it.
"""

_QUERIES = split_named_queries(
    files("trimtab_serve.schedules").joinpath("queries.sql").read_text(encoding="utf-8")
)


class TooManySchedules(TrimtabError, ValueError):
    """A session or a tenant has reached its limit of schedules."""

    def __init__(self, owner: str, limit: int) -> None:
        super().__init__(f"{owner} has {limit} schedules, which is the limit; cancel one")


class ScheduleNotPosted(TrimtabError, RuntimeError):
    """A due schedule could not be posted. It stays due."""

    def __init__(self, schedule_id: str, error: Exception) -> None:
        self.schedule_id = schedule_id
        """Id of the schedule."""
        super().__init__(f"schedule {schedule_id} is due but cannot run: {error}")


class ScheduleStore:
    """Stores schedules by id, in the database of a queue. Every method may raise
    `StoreUnavailable`."""

    def __init__(self, transactions: Transactions) -> None:
        self.access = ScheduleAccess()
        """Decides which schedules may run."""
        self._transactions = transactions

    async def upsert(self, schedule: Schedule) -> None:
        """Add a schedule, or change the one with this id.

        The `next_run_at` of the argument is used only if the schedule is new or its due times
        changed.
        """

        async def put(transaction: Transaction) -> None:
            if await transaction.execute(_QUERIES["insert"], *_schedule_to_row(schedule)):
                return
            was = await _lock_schedule(transaction, schedule.id)
            now = was and apply_schedule_change(was, schedule)
            if now is not None and now != was:
                await transaction.execute(_QUERIES["change"], *_schedule_to_row(now))

        await self._transactions.transact(put)

    async def add(
        self, schedule: Schedule, *, limit: int, tenant_limit: int | None = None
    ) -> Schedule:
        """Add a schedule of a tool. If its id exists, return the stored one.

        Raises `TooManySchedules` if the session already has `limit` unfinished schedules, or the
        tenant already has `tenant_limit`. None means that the tenant has no limit.
        """
        session = schedule.session
        tenant = session.partition("/")[0]

        async def insert(transaction: Transaction) -> Schedule:
            await transaction.fetch(_QUERIES["adding"], tenant)
            for row in await transaction.fetch(_QUERIES["get"], schedule.id):
                return _schedule_from_row(row)
            expired_at = schedule.created_at - FINISHED_RETENTION_S
            await transaction.execute(_QUERIES["old"], session, expired_at)
            ((count,),) = await transaction.fetch(_QUERIES["count"], session)
            if count >= limit:
                raise TooManySchedules(f"session {session!r}", limit)
            if tenant_limit is not None:
                values = [f"{tenant}/", f"{tenant}0", tenant_limit]
                ((count,),) = await transaction.fetch(_QUERIES["count_tenant"], *values)
                if count >= tenant_limit:
                    raise TooManySchedules(f"tenant {tenant}", tenant_limit)
            await transaction.execute(_QUERIES["insert"], *_schedule_to_row(schedule))
            return schedule

        return await self._transactions.transact(insert)

    async def remove(self, schedule_id: str) -> bool:
        """Remove a schedule with its run log. Return False if it does not exist."""
        return bool(await self._erase("remove", schedule_id))

    async def pause(self, schedule_id: str) -> bool:
        """Pause a schedule until it is resumed. Return False if it does not exist."""
        return await self._change_schedule(schedule_id, paused_schedule)

    async def resume(self, schedule_id: str, now: float) -> bool:
        """Resume a schedule from now on. Return False if it does not exist."""
        return await self._change_schedule(schedule_id, lambda was: resumed_schedule(was, now))

    async def correct(self, schedule_id: str, now: float) -> bool:
        """Undo the effect of a clock that was ahead, as `corrected_schedule` does.

        Return False if the schedule does not exist.
        """
        return await self._change_schedule(schedule_id, lambda was: corrected_schedule(was, now))

    async def run_now(self, schedule_id: str, now: float) -> bool:
        """Run a schedule once more, even if it is paused. Its next time stays the same.

        Return False if it does not exist.
        """

        async def run(transaction: Transaction) -> bool:
            schedule = await _lock_schedule(transaction, schedule_id)
            if schedule is None:
                return False
            await transaction.post([build_run_message(schedule, now, now)])
            entry = ScheduleRunLogEntry(schedule=schedule.id, due=now, at=now)
            await record_runs(transaction, schedule.id, schedule.next_run_at, now, [entry])
            return True

        return await self._transactions.transact(run)

    async def forget_session(self, session: str) -> None:
        """Remove the schedules that tools created in a session that is deleted."""
        await self._erase("forget", session)

    async def get(self, schedule_id: str) -> Schedule | None:
        """Return the schedule with this id."""
        rows = await self._transactions.fetch(_QUERIES["get"], schedule_id)
        return _schedule_from_row(rows[0]) if rows else None

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        """Return the schedules of a session, of an agent, or all, by id. Finished ones are
        included."""
        values = [session, agent, limit]
        rows = await self._transactions.fetch(_QUERIES["find"], *values, many=True)
        return [_schedule_from_row(row) for row in rows]

    async def list_runs(
        self, *, schedule_id: str | None = None, limit: int = 100
    ) -> list[ScheduleRunLogEntry]:
        """Return the run log of one schedule or of all, newest first."""
        rows = await self._transactions.fetch(_QUERIES["runs"], schedule_id, limit, many=True)
        return [
            ScheduleRunLogEntry(schedule=one, due=due, at=at, reason=reason, until=until)
            for one, due, at, reason, until in rows
        ]

    async def next_due(
        self, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> float | None:
        """Return when the next schedule of these agents is due."""
        rows = await self._transactions.fetch(_QUERIES["next_due"], [*agents], [*excluding])
        return rows[0][0] if rows else None

    async def run_next_due(
        self, now: float, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> Schedule | None:
        """Run the schedule of these agents that has been due longest. Return None if none is due.

        The messages and the next time are stored together. Raises `ScheduleNotPosted`.
        """

        async def run(transaction: Transaction) -> tuple[Schedule, bool] | None:
            for row in await transaction.fetch(_QUERIES["claim"], now, [*agents], [*excluding]):
                schedule = _schedule_from_row(row)
                return schedule, await self._run(transaction, schedule, now)
            return None

        while True:
            due_at = await self.next_due(agents, excluding=excluding)
            outcome = None
            if due_at is not None and due_at <= now:
                outcome = await self._transactions.transact(run)
            if outcome is None:
                return None
            schedule, has_run = outcome
            if has_run:
                return schedule

    async def _run(self, transaction: Transaction, schedule: Schedule, now: float) -> bool:
        """Post the due runs of a schedule, or skip them. Return whether it may run."""
        try:
            denial = await self._decide_to_skip(transaction, schedule, now)
            verdict = denial or decide_due_runs(schedule, now)
            await transaction.post(
                [build_run_message(schedule, due, now) for due in verdict.due_times]
            )
        except (StoreError, *self._transactions.errors):
            raise
        except Exception as error:
            raise ScheduleNotPosted(schedule.id, error) from error
        runs = verdict.build_run_log(schedule, now)
        await record_runs(transaction, schedule.id, verdict.next_run_at, now, runs)
        return denial is None

    async def _decide_to_skip(
        self, transaction: Transaction, schedule: Schedule, now: float
    ) -> DueRunsDecision | None:
        """Return the decision to skip a schedule of a tenant. None if it may run."""
        tenant = find_tenant_that_needs_key(schedule)
        if tenant is None:
            return None
        rows = await transaction.fetch(_QUERIES["has_key"], tenant, schedule.agent, now)
        return self.access.decide(tenant, schedule, now, has_key=bool(rows))

    async def _change_schedule(
        self, schedule_id: str, change: Callable[[Schedule], Schedule]
    ) -> bool:
        async def put(transaction: Transaction) -> bool:
            was = await _lock_schedule(transaction, schedule_id)
            if was is not None:
                await transaction.execute(_QUERIES["change"], *_schedule_to_row(change(was)))
            return was is not None

        return await self._transactions.transact(put)

    async def _erase(self, query_name: str, name: str) -> int:
        async def erase(transaction: Transaction) -> int:
            return await transaction.execute(_QUERIES[query_name], name)

        return await self._transactions.transact(erase, erases=True)


async def execute_schedule_command(
    schedules: ScheduleStore, verb: ScheduleVerb, schedule_id: str, now: float
) -> bool:
    """Execute an operator's command. Return False if the schedule does not exist."""
    match verb:
        case "pause":
            return await schedules.pause(schedule_id)
        case "resume":
            return await schedules.resume(schedule_id, now)
        case "run-now":
            return await schedules.run_now(schedule_id, now)
        case "remove":
            return await schedules.remove(schedule_id)


async def record_runs(
    transaction: Transaction,
    schedule_id: str,
    next_run_at: float | None,
    now: float,
    runs: Sequence[ScheduleRunLogEntry],
) -> None:
    """Set the next time of a schedule, and record the runs that were due."""
    await transaction.execute(_QUERIES["move"], schedule_id, next_run_at, now)
    rows = [(schedule_id, run.due, run.at, run.reason, run.until) for run in runs]
    await transaction.execute_many(_QUERIES["log"], rows)
    await transaction.execute(_QUERIES["shorten"], schedule_id, MAX_RUN_LOG_ENTRIES)


async def _lock_schedule(transaction: Transaction, schedule_id: str) -> Schedule | None:
    rows = await transaction.fetch(_QUERIES["locked"], schedule_id)
    return _schedule_from_row(rows[0]) if rows else None


def _schedule_to_row(schedule: Schedule) -> list[Any]:
    body = dump_canonical_json(schedule_to_json(schedule))
    one = schedule
    return [one.id, one.session, one.agent, one.origin, body, one.next_run_at, one.paused]


def _schedule_from_row(row: tuple[Any, ...]) -> Schedule:
    body, next_run_at = row
    return schedule_from_json({**json.loads(body), "next_run_at": next_run_at})
