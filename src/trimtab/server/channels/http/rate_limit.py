"""How often one caller may ask: a bucket that fills at a steady rate."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST_S = 10.0
"""Seconds' worth of requests that may come at once."""
MIN_BURST_REQUESTS = 10
"""Requests that may come at once, however slow the rate."""


class CallerRateLimiter:
    """Buckets by the caller's name."""

    def __init__(
        self, requests_per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens_per_s = requests_per_minute / 60
        self._capacity = max(float(MIN_BURST_REQUESTS), self._tokens_per_s * BURST_S)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take_or_retry_after_s(self, caller_name: str) -> float:
        """Take one; 0, or the seconds until one is there, and then none is taken."""
        now = self._clock()
        left, at = self._buckets.get(caller_name, (self._capacity, now))
        left = min(self._capacity, left + (now - at) * self._tokens_per_s)
        if left < 1:
            self._buckets[caller_name] = (left, now)
            return (1 - left) / self._tokens_per_s
        self._buckets[caller_name] = (left - 1, now)
        return 0.0
