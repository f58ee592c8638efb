"""The interface of a schedule store. Each due run becomes one message, exactly once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol

from trimtab.errors import TrimtabError
from trimtab_serve.schedules.access import ScheduleAccess
from trimtab_serve.schedules.schedule import Schedule, ScheduleRunLogEntry

ScheduleVerb = Literal["pause", "resume", "run-now", "remove"]
MAX_RUN_LOG_ENTRIES = 100
"""Number of run log entries that are kept for one schedule, the newest ones."""
FINISHED_RETENTION_S = 7 * 86_400.0
"""Seconds for which a finished schedule of a tool is kept.

A tool call that is repeated after a crash finds it.
"""


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


class ScheduleStore(Protocol):
    """Stores schedules by id. Every method may raise `StoreUnavailable`."""

    access: ScheduleAccess
    """Decides which schedules may run."""

    async def upsert(self, schedule: Schedule) -> None:
        """Add a schedule, or change the one with this id.

        The `next_run_at` of the argument is used only if the schedule is new or its due times
        changed.
        """
        ...

    async def add(
        self, schedule: Schedule, *, limit: int, tenant_limit: int | None = None
    ) -> Schedule:
        """Add a schedule of a tool. If its id exists, return the stored one.

        Raises `TooManySchedules` if the session already has `limit` unfinished schedules, or the
        tenant already has `tenant_limit`. None means that the tenant has no limit.
        """
        ...

    async def remove(self, schedule_id: str) -> bool:
        """Remove a schedule with its run log. Return False if it does not exist."""
        ...

    async def pause(self, schedule_id: str) -> bool:
        """Pause a schedule until it is resumed. Return False if it does not exist."""
        ...

    async def resume(self, schedule_id: str, now: float) -> bool:
        """Resume a schedule from now on. Return False if it does not exist."""
        ...

    async def correct(self, schedule_id: str, now: float) -> bool:
        """Undo the effect of a clock that was ahead, as `corrected_schedule` does.

        Return False if the schedule does not exist.
        """
        ...

    async def run_now(self, schedule_id: str, now: float) -> bool:
        """Run a schedule once more, even if it is paused. Its next time stays the same.

        Return False if it does not exist.
        """
        ...

    async def forget_session(self, session: str) -> None:
        """Remove the schedules that tools created in a session that is deleted."""
        ...

    async def get(self, schedule_id: str) -> Schedule | None:
        """Return the schedule with this id."""
        ...

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        """Return the schedules of a session, of an agent, or all, by id. Finished ones are
        included."""
        ...

    async def list_runs(
        self, *, schedule_id: str | None = None, limit: int = 100
    ) -> list[ScheduleRunLogEntry]:
        """Return the run log of one schedule or of all, newest first."""
        ...

    async def next_due(
        self, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> float | None:
        """Return when the next schedule of these agents is due."""
        ...

    async def run_next_due(
        self, now: float, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> Schedule | None:
        """Run the schedule of these agents that has been due longest. Return None if none is due.

        The messages and the next time are stored together. Raises `ScheduleNotPosted`.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


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
