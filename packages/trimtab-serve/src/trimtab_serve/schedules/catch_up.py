"""Decide which due runs are made: all of them, one for all missed runs, or none that was missed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab_serve.schedules.schedule import Schedule, ScheduleRunLogEntry
from trimtab_serve.schedules.triggers import find_last_due_time, find_next_due_time

LATE_AFTER_S = 60.0
"""Seconds after which a run is late. The runner polls often enough to stay below this."""
MAX_RUNS_PER_STEP = 200
"""Maximum number of missed runs that one step makes up for. The next steps do the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRunsDecision:
    """What happens to a due schedule."""

    due_times: tuple[float, ...]
    """Due times of the runs to make."""
    skipped: ScheduleRunLogEntry | None
    """The runs to skip, with the reason."""
    next_run_at: float | None
    """When it is due next. This only moves forward, so a clock that is set back a little runs
    nothing twice."""

    def build_run_log(self, schedule: Schedule, now: float) -> list[ScheduleRunLogEntry]:
        """Return the entries of the run log."""
        runs = [
            ScheduleRunLogEntry(schedule=schedule.id, due=due, at=now) for due in self.due_times
        ]
        return runs if self.skipped is None else [self.skipped, *runs]


def decide_due_runs(schedule: Schedule, now: float) -> DueRunsDecision:
    """Decide which runs to make of a schedule whose `next_run_at` has passed."""
    first = schedule.next_run_at
    if first is None or first > now:
        raise ValueError(f"schedule {schedule.id} is not due")
    catch_up_s = 0.0 if schedule.catch_up == "skip" else float(schedule.catch_up_window)
    oldest = now - max(LATE_AFTER_S, catch_up_s)
    due = _list_due_times(schedule, first, oldest, now) if schedule.catch_up == "all" else ()
    if schedule.catch_up != "all":
        last = find_last_due_time(schedule.trigger, first, now)
        due = (last,) if last >= oldest else ()
    skip_entry = None
    if not due or first < due[0]:
        until = due[0] if due else now
        reason = _skip_reason(schedule, made_up=bool(due))
        skip_entry = ScheduleRunLogEntry(
            schedule=schedule.id, due=first, at=now, reason=reason, until=until
        )
    behind = find_next_due_time(schedule.trigger, due[-1] if due else now)
    return DueRunsDecision(due_times=due, skipped=skip_entry, next_run_at=behind)


def _list_due_times(
    schedule: Schedule, first: float, oldest: float, now: float
) -> tuple[float, ...]:
    times: list[float] = []
    # In whole seconds, because the oldest allowed run may be due at that very second.
    at = first if first >= oldest else find_next_due_time(schedule.trigger, math.ceil(oldest) - 1.0)
    while at is not None and at <= now and len(times) < MAX_RUNS_PER_STEP:
        times.append(at)
        at = find_next_due_time(schedule.trigger, at)
    return tuple(times)


def _skip_reason(schedule: Schedule, *, made_up: bool) -> str:
    if schedule.catch_up == "skip":
        return "missed, and `catch_up` is `skip`"
    if schedule.catch_up == "once" and made_up:
        return "missed; one later run replaces all missed runs"
    return f"missed more than {schedule.catch_up_window:,} seconds ago"
