"""How many messages of a tenant wait, about: counting them for each new one would cost too much."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

COUNT_VALID_S = 1.0
"""Seconds for which a count holds, with what came in here since added."""
FULL_COUNT_VALID_S = 0.02
"""Seconds for which it holds where it is too many: those who wait go, too."""
MAX_CACHED_COUNTS = 1_000
"""Counts that are remembered before the old ones go."""


@dataclass(slots=True)
class _Count:
    counted: int
    """Messages, by the last count."""
    came: int
    """Messages that came in here since."""
    at: float
    """When they were counted, by a clock that only goes forward."""


class BacklogEstimator:
    """Asks `depth` now and then. What other processes take in is seen at the next count."""

    def __init__(
        self,
        count_waiting_in_queue: Callable[[str], Awaitable[int]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count_waiting = count_waiting_in_queue
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    async def estimate(self, prefix: str, limit: int) -> int:
        """Messages that wait; exact, but for the last moment, where it comes near the limit."""
        found, now = self._counts.get(prefix), self._clock()
        if found is not None:
            waiting, age = found.counted + found.came, now - found.at
            if (waiting < limit and age < COUNT_VALID_S) or (
                found.counted >= limit and age < FULL_COUNT_VALID_S
            ):
                return waiting
        count = _Count(await self._count_waiting(prefix), 0, now)
        if len(self._counts) >= MAX_CACHED_COUNTS:
            self._counts = {
                name: one for name, one in self._counts.items() if now - one.at < COUNT_VALID_S
            }
        self._counts[prefix] = count
        return count.counted

    def note_arrival(self, prefix: str) -> None:
        """One more was taken in."""
        if prefix in self._counts:
            self._counts[prefix].came += 1
