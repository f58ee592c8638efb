"""Cron expressions as they are written in a file or said to a tool."""

from __future__ import annotations

from datetime import datetime

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = 5
LONGEST = 120
"""Characters of an expression."""


def five_fields(text: str) -> str:
    """The expression in its five fields. Raises `ValueError` where it is none, or never due, and
    `ModuleNotFoundError` where the package that reads them is not installed."""
    written = ALIASES.get(text.strip().lower(), " ".join(text.split()))
    count = len(written.split())
    if written.startswith("@") or len(written) > LONGEST:
        raise ValueError(_no_cron(text, f"there are {', '.join(ALIASES)}, and five fields"))
    if count != FIELDS:
        raise ValueError(_no_cron(text, f"it needs five fields and has {count}"))
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(written, datetime(2000, 1, 1)))  # noqa: DTZ001 - only its form is looked at
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        raise ValueError(_no_cron(text, str(error) or "a field cannot be read")) from None
    except StopIteration:
        raise ValueError(f"{text[:60]!r} is never due; see its day and its month") from None
    return written


def _no_cron(text: str, why: str) -> str:
    return (
        f"{text[:60]!r} is no cron expression ({why}); write minute, hour, day, month, weekday, as "
        "in `0 8 * * mon-fri`"
    )
