"""How long a provider asks to wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Seconds from now, of `retry-after-ms` or `retry-after`; None where neither says."""
    if not headers:
        return None
    told = {name.lower(): value.strip() for name, value in headers.items()}
    if (milliseconds := _seconds(told.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = told.get("retry-after")
    if (seconds := _seconds(given)) is not None:
        return seconds
    if (then := _moment(given)) is None:
        return None
    # The server's own clock, where it names the time: ours may be off by more than the wait.
    now = _moment(told.get("date"))
    return max(0.0, then - (time.time() if now is None else now))


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _moment(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (ValueError, OverflowError):
        return None
