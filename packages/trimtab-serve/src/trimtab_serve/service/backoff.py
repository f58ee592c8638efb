"""How long to wait before the next attempt."""

from __future__ import annotations

_MAX_DOUBLINGS = 32


def compute_backoff_s(failures: int, *, first_s: float, max_s: float) -> float:
    """Return the seconds to wait after this number of failures in a row (at least one).

    The wait is `first_s` after the first failure and doubles each time, up to `max_s`.
    """
    return min(max_s, first_s * 2 ** min(max(0, failures - 1), _MAX_DOUBLINGS))
