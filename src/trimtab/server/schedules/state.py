"""The schedules of a folder as they stand: folded from the lines of their log."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from trimtab.server.schedules.protocol import FINISHED_RETENTION_S, MAX_RUN_LOG_ENTRIES
from trimtab.server.schedules.schedule import (
    Schedule,
    ScheduleRunLogEntry,
    schedule_from_json,
    schedule_run_from_json,
    schedule_run_to_json,
    schedule_to_json,
)

ScheduleRecord = dict[str, Any]
"""A line, as plain JSON values."""


class ScheduleState:
    """Changed by `apply` alone."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._runs: dict[str, deque[ScheduleRunLogEntry]] = {}

    @property
    def size(self) -> int:
        """Lines that the shortest log of it has."""
        return len(self._schedules)

    def apply(self, record: ScheduleRecord) -> None:
        """Take in a line."""
        match record["kind"]:
            case "kept":
                made = schedule_from_json(record["schedule"])
                self._schedules[made.id] = made
                for run in record["runs"]:
                    self._add_run(schedule_run_from_json(run))
            case "moved":
                # A line that was written for one that is gone changes nothing.
                if record["id"] in self._schedules:
                    was = self._schedules[record["id"]]
                    moved = replace(was, next_run_at=record["next_run_at"])
                    self._schedules[was.id] = moved
                    for run in record["runs"]:
                        self._add_run(schedule_run_from_json(run))
            case "removed":
                for gone in record["ids"]:
                    self._schedules.pop(gone, None)
                    self._runs.pop(gone, None)
            case kind:
                raise ValueError(f"{kind!r} is of a later release; upgrade trimtab")

    def records(self) -> Iterator[ScheduleRecord]:
        """The shortest log that folds to this."""
        for schedule in self._schedules.values():
            yield build_schedule_record(schedule, self._runs.get(schedule.id, ()))

    def get(self, schedule_id: str) -> Schedule | None:
        return self._schedules.get(schedule_id)

    def find(self, session: str | None = None, agent: str | None = None) -> list[Schedule]:
        """By id."""
        found = (
            one
            for one in self._schedules.values()
            if session in (None, one.session) and agent in (None, one.agent)
        )
        return sorted(found, key=lambda one: one.id)

    def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRunLogEntry]:
        """The newest first."""
        logs = self._runs.values() if schedule_id is None else (self._runs.get(schedule_id, ()),)
        found = [run for one in logs for run in one]
        return sorted(found, key=lambda run: (run.at, run.due), reverse=True)[:limit]

    def first_due(self, agents: Collection[str], excluding: Collection[str]) -> Schedule | None:
        """The one that is due first."""
        coming = [
            (one.next_run_at, one.id, one)
            for one in self._schedules.values()
            if one.next_run_at is not None
            and not one.paused
            and one.agent in agents
            and one.id not in excluding
        ]
        return min(coming)[2] if coming else None

    def list_expired_ids(self, now: float) -> list[str]:
        """What tools have made, is done, and need not be remembered."""
        return [
            one.id
            for one in self._schedules.values()
            if one.origin == "tool"
            and one.next_run_at is None
            and max((run.at for run in self._runs.get(one.id, ())), default=0.0)
            < now - FINISHED_RETENTION_S
        ]

    def _add_run(self, run: ScheduleRunLogEntry) -> None:
        self._runs.setdefault(run.schedule, deque(maxlen=MAX_RUN_LOG_ENTRIES)).append(run)


def build_schedule_record(
    schedule: Schedule, runs: Iterable[ScheduleRunLogEntry] = ()
) -> ScheduleRecord:
    """The line of a schedule that is new or changed."""
    return {
        "kind": "kept",
        "schedule": schedule_to_json(schedule),
        "runs": [schedule_run_to_json(run) for run in runs],
    }


def build_due_run_record(
    schedule_id: str, next_run_at: float | None, run_log_entries: Sequence[ScheduleRunLogEntry]
) -> ScheduleRecord:
    """The line of a schedule that was due."""
    return {
        "kind": "moved",
        "id": schedule_id,
        "next_run_at": next_run_at,
        "runs": [schedule_run_to_json(run) for run in run_log_entries],
    }


def build_removal_record(schedule_ids: Sequence[str]) -> ScheduleRecord:
    """The line of schedules that are gone."""
    return {"kind": "removed", "ids": list(schedule_ids)}
