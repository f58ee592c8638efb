"""What keeps schedules, whatever it is made of: each due run becomes a message, once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol

from trimtab.errors import TrimtabError
from trimtab.server.schedules.schedule import Schedule, ScheduleRunLogEntry

ScheduleVerb = Literal["pause", "resume", "run-now", "remove"]
MAX_RUN_LOG_ENTRIES = 100
"""Lines of the run log that are kept of one schedule, the newest."""
FINISHED_RETENTION_S = 7 * 86_400.0
"""Seconds that a schedule of a tool is remembered when it is done: a call of the tool that is made
again after a crash finds it."""


class TooManySchedules(TrimtabError, ValueError):
    """A session has as many schedules as it may have."""

    def __init__(self, session: str, limit: int) -> None:
        super().__init__(
            f"session {session!r} has {limit} schedules and may not have more; cancel one"
        )


class ScheduleNotPosted(TrimtabError, RuntimeError):
    """A schedule is due and could not be posted; it stays due."""

    def __init__(self, schedule_id: str, error: Exception) -> None:
        self.schedule_id = schedule_id
        """Its id."""
        super().__init__(f"{schedule_id} is due and cannot be run: {error}")


class ScheduleStore(Protocol):
    """Schedules by id. Every method may raise `StoreUnavailable`."""

    async def upsert(self, schedule: Schedule) -> None:
        """Add it, or change the one of that id; what is due at the same times goes on as it was.

        Its `next_run_at` counts only where it is new or due at other times than before.
        """
        ...

    async def add(self, schedule: Schedule, *, limit: int) -> Schedule:
        """Add one of a tool; the one that is there where its id is known.

        Raises `TooManySchedules` where its session has as many that are not done.
        """
        ...

    async def remove(self, schedule_id: str) -> bool:
        """Remove it with its run log; False where there is none."""
        ...

    async def pause(self, schedule_id: str) -> bool:
        """Let it not run until it is resumed; False where there is none."""
        ...

    async def resume(self, schedule_id: str, now: float) -> bool:
        """Let it run again, from now on; False where there is none."""
        ...

    async def run_now(self, schedule_id: str, now: float) -> bool:
        """Run it once besides, paused or not; its next time stays. False where there is none."""
        ...

    async def forget_session(self, session: str) -> None:
        """Remove what tools have made in a session that is deleted."""
        ...

    async def get(self, schedule_id: str) -> Schedule | None:
        """The one of that id."""
        ...

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        """Those of a session or of an agent, or all, by id; those that are done included."""
        ...

    async def list_runs(
        self, *, schedule_id: str | None = None, limit: int = 100
    ) -> list[ScheduleRunLogEntry]:
        """The run log of one or of all, the newest first."""
        ...

    async def next_due(
        self, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> float | None:
        """When the next of these agents' is due."""
        ...

    async def run_next_due(
        self, now: float, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> Schedule | None:
        """Run the one of these agents that has been due longest; None where none is due.

        Its messages and its next time are kept together. Raises `ScheduleNotPosted`.
        """
        ...

    async def close(self) -> None:
        """Give back whatever is held."""
        ...


async def execute_schedule_command(
    schedules: ScheduleStore, verb: ScheduleVerb, schedule_id: str, now: float
) -> bool:
    """Do what an operator asks; False where there is no such schedule."""
    match verb:
        case "pause":
            return await schedules.pause(schedule_id)
        case "resume":
            return await schedules.resume(schedule_id, now)
        case "run-now":
            return await schedules.run_now(schedule_id, now)
        case "remove":
            return await schedules.remove(schedule_id)
