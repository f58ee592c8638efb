"""Cron expressions as they are written in a file or said to a tool."""

from __future__ import annotations

from datetime import datetime

CRON_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_FIELD_COUNT = 5
MAX_CRON_CHARS = 120
"""Characters of an expression."""


def normalise_cron(expression: str) -> str:
    """The expression in its five fields. Raises `ValueError` where it is none, or never due, and
    `ModuleNotFoundError` where the package that reads them is not installed."""
    written = CRON_ALIASES.get(expression.strip().lower(), " ".join(expression.split()))
    count = len(written.split())
    if written.startswith("@") or len(written) > MAX_CRON_CHARS:
        raise ValueError(
            _cron_error_text(expression, f"there are {', '.join(CRON_ALIASES)}, and five fields")
        )
    if count != CRON_FIELD_COUNT:
        raise ValueError(_cron_error_text(expression, f"it needs five fields and has {count}"))
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(written, datetime(2000, 1, 1)))  # noqa: DTZ001 - only its form is looked at
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        raise ValueError(
            _cron_error_text(expression, str(error) or "a field cannot be read")
        ) from None
    except StopIteration:
        raise ValueError(f"{expression[:60]!r} is never due; see its day and its month") from None
    return written


def _cron_error_text(text: str, why: str) -> str:
    return (
        f"{text[:60]!r} is no cron expression ({why}); write minute, hour, day, month, weekday, as "
        "in `0 8 * * mon-fri`"
    )
