"""Buckets of requests: so many in so many seconds, and what the headers say of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.testing.discord.refusals import limited


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Requests of one kind to one place."""

    limit: int
    """Requests in a window."""
    seconds: float
    """The window's length."""
    used: int = 0
    """Requests in this window."""
    ends: float = 0.0
    """When it ends, by the limits' clock."""


@dataclass(slots=True, kw_only=True)
class Limits:
    """All buckets."""

    clock: Callable[[], float]
    """Seconds since the epoch."""
    refused: int = 0
    """Requests that were too many."""
    _buckets: dict[str, Bucket] = field(default_factory=dict[str, Bucket])

    def take(self, name: str, size: tuple[int, float], *, everything: bool = False) -> None:
        """Count one more request; one too many is refused."""
        now = self.clock()
        bucket = self._buckets.get(name)
        if bucket is None or (bucket.limit, bucket.seconds) != size:
            bucket = self._buckets[name] = Bucket(limit=size[0], seconds=size[1])
        if now >= bucket.ends:
            bucket.used, bucket.ends = 0, now + bucket.seconds
        if bucket.used >= bucket.limit:
            self.refused += 1
            told = limited(bucket.ends - now, everything=everything)
            told.headers |= self.headers(name)
            raise told
        bucket.used += 1

    def headers(self, name: str) -> dict[str, str]:
        """What a response says of its bucket."""
        bucket, now = self._buckets[name], self.clock()
        kind = name.partition(":")[0]
        return {
            "X-RateLimit-Limit": str(bucket.limit),
            "X-RateLimit-Remaining": str(bucket.limit - bucket.used),
            "X-RateLimit-Reset": f"{bucket.ends:.3f}",
            "X-RateLimit-Reset-After": f"{max(0.0, bucket.ends - now):.3f}",
            "X-RateLimit-Bucket": hashlib.sha256(kind.encode()).hexdigest()[:16],
        }
