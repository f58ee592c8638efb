"""Rate limit per caller: a token bucket that fills at a steady rate."""

from __future__ import annotations

import time
from collections.abc import Callable

from trimtab_serve.queue.bounded_dict import BoundedDict

BURST_S = 10.0
"""A burst may have as many requests as the rate allows in this number of seconds."""
MIN_BURST_REQUESTS = 10
"""Minimum size of a burst, however low the rate."""
MAX_BUCKETS = 10_000
"""Number of callers that are remembered. A forgotten one begins with a full bucket."""


def compute_request_burst(requests_per_minute: int) -> int:
    """Return how many requests one caller may make at once after a pause.

    It is a sixth of the requests per minute, at least ten.
    """
    return int(max(MIN_BURST_REQUESTS, requests_per_minute / 60 * BURST_S))


class CallerRateLimiter:
    """Buckets by the caller's name, or by another text that identifies a caller."""

    def __init__(
        self,
        requests_per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        burst: int | None = None,
    ) -> None:
        self._tokens_per_s = requests_per_minute / 60
        self._capacity = float(
            compute_request_burst(requests_per_minute) if burst is None else burst
        )
        self._clock = clock
        self._buckets: BoundedDict[str, tuple[float, float]] = BoundedDict(MAX_BUCKETS)

    def take_or_retry_after_s(self, caller_name: str) -> float:
        """Take a token and return 0. If there is none, return the seconds until there is one."""
        now = self._clock()
        tokens, at = self._buckets.get(caller_name, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - at) * self._tokens_per_s)
        tokens_taken = 1 if tokens >= 1 else 0
        self._buckets[caller_name] = (tokens - tokens_taken, now)
        return 0.0 if tokens_taken else (1 - tokens) / self._tokens_per_s
