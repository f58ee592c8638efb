"""Estimate how many messages of a tenant wait. An exact count per message would cost too much."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

COUNT_VALID_S = 1.0
"""Seconds for which a count is valid. Messages that arrive here meanwhile are added."""
FULL_COUNT_VALID_S = 0.02
"""Seconds for which a count above the limit is valid. It is short because the queue also
shrinks."""
MAX_CACHED_COUNTS = 1_000
"""Maximum number of cached counts."""


class CountWaiting(Protocol):
    """`MessageQueue.depth`."""

    async def __call__(self, prefix: str, *, limit: int) -> int:
        """Return the number of waiting messages."""
        ...


@dataclass(slots=True)
class _Count:
    counted: int
    """Messages at the last count."""
    came: int
    """Messages that arrived here since then."""
    at: float
    """When they were counted, by a monotonic clock."""


class BacklogEstimator:
    """Calls `depth` now and then. Messages of other processes are noticed at the next count."""

    def __init__(
        self,
        count_waiting_in_queue: CountWaiting,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count_waiting = count_waiting_in_queue
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    async def estimate(self, prefix: str, limit: int) -> int:
        """Return the number of waiting messages. Near the limit, it is exact except for the last
        moment."""
        last_count = self._counts.get(prefix)
        now = self._clock()
        if last_count is not None:
            waiting = last_count.counted + last_count.came
            age = now - last_count.at
            if (waiting < limit and age < COUNT_VALID_S) or (
                last_count.counted >= limit and age < FULL_COUNT_VALID_S
            ):
                return waiting
        count = _Count(await self._count_waiting(prefix, limit=limit), 0, now)
        if len(self._counts) >= MAX_CACHED_COUNTS:
            self._counts = {
                name: one for name, one in self._counts.items() if now - one.at < COUNT_VALID_S
            }
        self._counts[prefix] = count
        return count.counted

    def note_arrival(self, prefix: str) -> None:
        """Count one more message."""
        if prefix in self._counts:
            self._counts[prefix].came += 1
