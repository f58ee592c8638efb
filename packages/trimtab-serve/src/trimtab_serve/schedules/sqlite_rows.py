"""Schedules and their runs as rows. The caller owns the transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from trimtab.engine.log.event import dump_canonical_json
from trimtab_serve.queue.sqlite.queries import SQLITE_QUERIES, decode_name, encode_name
from trimtab_serve.schedules.protocol import MAX_RUN_LOG_ENTRIES
from trimtab_serve.schedules.schedule import (
    Schedule,
    ScheduleRunLogEntry,
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
