"""Which of the runs that are due are made: all, one for all, or none that was missed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.worker.schedules.schedule import Run, Schedule
from trimtab.worker.schedules.when import following, newest

GRACE = 60.0
"""Seconds after which a run is late: what is looked at so often is on time."""
BATCH = 200
"""Runs that are made up for in one step; more follow in the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a schedule that is due."""

    due: tuple[float, ...]
    """The runs that are made, by when they were due."""
    skipped: Run | None
    """Those that are not, with why."""
    next_run_at: float | None
    """When it is due next. It moves forward only: a clock that is set back runs nothing twice."""

    def runs(self, schedule: Schedule, now: float) -> list[Run]:
        """What the run log says of it."""
        made = [Run(schedule=schedule.id, due=due, at=now) for due in self.due]
        return made if self.skipped is None else [self.skipped, *made]


def judge(schedule: Schedule, now: float) -> Verdict:
    """Decide about a schedule whose `next_run_at` has come."""
    first = schedule.next_run_at
    if first is None or first > now:
        raise ValueError(f"{schedule.id} is not due")
    allowed = 0.0 if schedule.missed == "skip" else float(schedule.late)
    oldest = now - max(GRACE, allowed)
    due = _all(schedule, first, oldest, now) if schedule.missed == "all" else ()
    if schedule.missed != "all":
        last = newest(schedule.when, first, now)
        due = (last,) if last >= oldest else ()
    skipped = None
    if not due or first < due[0]:
        until = due[0] if due else now
        why = _why(schedule, made_up=bool(due))
        skipped = Run(schedule=schedule.id, due=first, at=now, why=why, until=until)
    behind = following(schedule.when, due[-1] if due else now)
    return Verdict(due=due, skipped=skipped, next_run_at=behind)


def _all(schedule: Schedule, first: float, oldest: float, now: float) -> tuple[float, ...]:
    found: list[float] = []
    # Whole seconds: the first one that is not too old may be due at that very second.
    at = first if first >= oldest else following(schedule.when, math.ceil(oldest) - 1.0)
    while at is not None and at <= now and len(found) < BATCH:
        found.append(at)
        at = following(schedule.when, at)
    return tuple(found)


def _why(schedule: Schedule, *, made_up: bool) -> str:
    if schedule.missed == "skip":
        return "missed, and `missed` is `skip`"
    if schedule.missed == "once" and made_up:
        return "missed, and one run stands for all"
    return f"missed for more than {schedule.late:,} seconds"
