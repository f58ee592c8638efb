"""How fast a bot may speak."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.testing.telegram.api_errors import make_flood_refusal


@dataclass(slots=True, kw_only=True)
class TelegramRateLimits:
    """Messages and edits in a time; those that are too many are refused and count all the same."""

    per_chat: int | None = None
    """In a second, in one chat; None for no limit."""
    per_group: int | None = None
    """In a minute, in one group."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _seen: dict[tuple[int, float], deque[float]] = field(
        default_factory=dict[tuple[int, float], deque[float]]
    )

    def count_message(self, chat_id: int) -> None:
        """Count one; raises a refusal with `retry_after`."""
        rules = [(self.per_chat, 1.0), (self.per_group if chat_id < 0 else None, 60.0)]
        now = self.clock()
        for most, span in rules:
            if most is None:
                continue
            seen = self._seen.setdefault((chat_id, span), deque())
            while seen and seen[0] <= now - span:
                seen.popleft()
            if len(seen) >= most:
                raise make_flood_refusal(max(1, math.ceil(seen[0] + span - now)))
            seen.append(now)
