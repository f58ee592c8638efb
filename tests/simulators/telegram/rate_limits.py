"""How many messages a bot may send in a time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulators.telegram.api_errors import make_flood_refusal


@dataclass(slots=True, kw_only=True)
class TelegramRateLimits:
    """Limits for messages and edits. Refused ones also count."""

    per_chat: int | None = None
    """Maximum per second in one chat. None means no limit."""
    per_group: int | None = None
    """Maximum per minute in one group."""
    clock: Callable[[], float] = time.monotonic
    """A clock in seconds."""
    _seen: dict[tuple[int, float], deque[float]] = field(
        default_factory=dict[tuple[int, float], deque[float]]
    )

    def count_message(self, chat_id: int) -> None:
        """Count one message. Raises a refusal with `retry_after` if there are too many."""
        rules = [(self.per_chat, 1.0), (self.per_group if chat_id < 0 else None, 60.0)]
        now = self.clock()
        for most, span in rules:
            if most is None:
                continue
            times = self._seen.setdefault((chat_id, span), deque())
            while times and times[0] <= now - span:
                times.popleft()
            if len(times) >= most:
                raise make_flood_refusal(max(1, math.ceil(times[0] + span - now)))
            times.append(now)
