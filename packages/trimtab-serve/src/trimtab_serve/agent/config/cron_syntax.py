"""Check cron expressions from a file or a tool call."""

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
"""Maximum length of an expression, in characters."""


def normalise_cron(expression: str) -> str:
    """Return the expression in its five fields. Raises `ValueError` if it is invalid or never due,
    and `ModuleNotFoundError` if the package that reads cron expressions is not installed."""
    cron = CRON_ALIASES.get(expression.strip().lower(), " ".join(expression.split()))
    count = len(cron.split())
    if cron.startswith("@") or len(cron) > MAX_CRON_CHARS:
        raise ValueError(
            _cron_error_text(expression, f"use {', '.join(CRON_ALIASES)}, or five fields")
        )
    if count != CRON_FIELD_COUNT:
        raise ValueError(_cron_error_text(expression, f"it needs five fields and has {count}"))
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(cron, datetime(2000, 1, 1)))  # noqa: DTZ001 - only its form is looked at
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        raise ValueError(
            _cron_error_text(expression, str(error) or "a field cannot be read")
        ) from None
    except StopIteration:
        raise ValueError(f"{expression[:60]!r} is never due; check its day and month") from None
    return cron


def _cron_error_text(text: str, why: str) -> str:
    return (
        f"{text[:60]!r} is not a valid cron expression ({why}); write minute, hour, day, month, "
        "weekday, as in `0 8 * * mon-fri`"
    )
