"""Rate limits: buckets of requests per time, and their headers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulators.discord.api_errors import make_rate_limit_refusal


@dataclass(slots=True, kw_only=True)
class RateLimitBucket:
    """Requests of one kind to one target."""

    limit: int
    """Maximum number of requests in a window."""
    seconds: float
    """The length of the window in seconds."""
    used: int = 0
    """Number of requests in this window."""
    resets_at: float = 0.0
    """When the window ends, by the clock of the limits."""


@dataclass(slots=True, kw_only=True)
class DiscordRateLimits:
    """All buckets."""

    clock: Callable[[], float]
    """A clock in seconds since the epoch."""
    refused_count: int = 0
    """Number of requests that were too many."""
    _buckets: dict[str, RateLimitBucket] = field(default_factory=dict[str, RateLimitBucket])

    def count_request(
        self, bucket_name: str, limit: tuple[int, float], *, is_global: bool = False
    ) -> None:
        """Count one request. Raises a refusal if there are too many."""
        now = self.clock()
        bucket = self._buckets.get(bucket_name)
        if bucket is None or (bucket.limit, bucket.seconds) != limit:
            bucket = self._buckets[bucket_name] = RateLimitBucket(limit=limit[0], seconds=limit[1])
        if now >= bucket.resets_at:
            bucket.used = 0
            bucket.resets_at = now + bucket.seconds
        if bucket.used >= bucket.limit:
            self.refused_count += 1
            refusal = make_rate_limit_refusal(bucket.resets_at - now, is_global=is_global)
            refusal.headers |= self.build_headers(bucket_name)
            raise refusal
        bucket.used += 1

    def build_headers(self, bucket_name: str) -> dict[str, str]:
        """Return the headers about the bucket."""
        bucket = self._buckets[bucket_name]
        now = self.clock()
        kind = bucket_name.partition(":")[0]
        return {
            "X-RateLimit-Limit": str(bucket.limit),
            "X-RateLimit-Remaining": str(bucket.limit - bucket.used),
            "X-RateLimit-Reset": f"{bucket.resets_at:.3f}",
            "X-RateLimit-Reset-After": f"{max(0.0, bucket.resets_at - now):.3f}",
            "X-RateLimit-Bucket": hashlib.sha256(kind.encode()).hexdigest()[:16],
        }
