"""How long to wait before the next attempt."""

from __future__ import annotations

_MAX_DOUBLINGS = 32


def compute_backoff_s(failures: int, *, first_s: float, max_s: float) -> float:
    """Return the seconds to wait after so many failures in a row, at least one.

    `first_s` after the first failure, then twice as long each time, `max_s` at most.
    """
    return min(max_s, first_s * 2 ** min(max(0, failures - 1), _MAX_DOUBLINGS))
