"""How often one caller may ask: a bucket that fills at a steady rate."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST = 10.0
"""Seconds' worth of requests that may come at once."""
LEAST = 10
"""Requests that may come at once, however slow the rate."""


class Pace:
    """Buckets by the caller's name."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(float(LEAST), self._rate * BURST)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, name: str) -> float:
        """Take one; 0, or the seconds until one is there, and then none is taken."""
        now = self._clock()
        left, at = self._left.get(name, (self._most, now))
        left = min(self._most, left + (now - at) * self._rate)
        if left < 1:
            self._left[name] = (left, now)
            return (1 - left) / self._rate
        self._left[name] = (left - 1, now)
        return 0.0
