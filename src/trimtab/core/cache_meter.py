"""How far a provider's prompt cache may be relied on, by what it reports."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.core.event import Usage

MEMORY = 20
"""Calls over which the rate forgets."""


@dataclass(slots=True)
class CacheMeter:
    miss_rate: float = 0.0
    """Share of expected reads that were reported as misses."""
    expected: int = 0
    """Tokens that the cache should hold for the call under way; 0 where nothing is expected."""
    reports: bool = False
    """True once the provider has reported a read or a write: before that, silence says nothing."""

    def hear(self, usage: Usage, minimum: int) -> None:
        """Take what the provider reported for the call under way."""
        self.reports = self.reports or usage.cache_read + usage.cache_write > 0
        if self.reports and self.expected > minimum:
            missed = 1.0 if usage.cache_read < self.expected / 2 else 0.0
            self.miss_rate += (missed - self.miss_rate) / MEMORY
