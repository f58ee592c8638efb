"""Procrastinate's worker, which misses no call to look for jobs.

It waits for a call, looks for jobs, and forgets calls. One that came while it was looking would be
forgotten with the others, and what it was about found only at the next look by the clock.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from procrastinate.worker import Worker


class Bell(asyncio.Event):
    """An event that is cleared only of what was heard."""

    def __init__(self) -> None:
        super().__init__()
        self._rung = self._heard = 0

    def set(self) -> None:
        self._rung += 1
        super().set()

    async def wait(self) -> Literal[True]:
        await super().wait()
        self._heard = self._rung
        return True

    def clear(self) -> None:
        if self._heard == self._rung:
            super().clear()


class FleetWorker(Worker):
    """A worker that can be told to look."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._new_job_event = Bell()

    def look(self) -> None:
        """There may be a job: one that waited behind a lock, for example."""
        self._new_job_event.set()
