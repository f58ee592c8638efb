"""When something is due: by cron, or once.

Clocks that are changed are met as Debian's cron meets them. What names an hour and a minute
(`30 2 * * *`) is due once a day: right after the gap where the clock skips its time, the first time
where the clock shows it twice. What recurs within the day (`*/15 * * * *`, `0 * * * *`) follows
the time that passes: nothing is due in a gap, and an hour that comes twice counts twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from trimtab.agent.cron import five_fields
from trimtab.worker.schedules.zones import first_moment, moments, shifts_near, wall, zone

if TYPE_CHECKING:
    from cronsim import CronSim

SERVE = "schedules need one more package: pip install 'trimtab[serve]'"
NEAR = 3 * 3600.0
"""Seconds that clocks are changed by at most."""

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_IN = re.compile(r"in\s+(\d{1,6})\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Made by `by_cron` and `once`, which check it."""

    cron: str | None = None
    """Five fields; None where it is due once."""
    at: float | None = None
    """The one time, in whole seconds since the epoch; None where it is due by cron."""
    timezone: str = "UTC"
    """Whose clock is meant."""

    def __str__(self) -> str:
        return self.cron if self.cron is not None else shown(self.at or 0.0, self.timezone)


def by_cron(text: str, timezone: str = "UTC") -> When:
    """Due by cron. Raises `ValueError` where it is not one, or never due."""
    zone(timezone)
    try:
        written = five_fields(text)
    except ModuleNotFoundError as error:
        raise ValueError(SERVE) from error
    return When(cron=written, timezone=timezone)


def once(text: str, timezone: str = "UTC") -> When:
    """Due once, at a date and a time; its own offset from UTC counts, if it has one."""
    where = zone(timezone)
    try:
        said = datetime.fromisoformat(text.strip())
        at = said.timestamp() if said.tzinfo is not None else first_moment(said, where)
        # Whatever is far off cannot be shown on that zone's clock.
        wall(at + 86_400, where)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text[:60]!r} is no date and time; it looks like 2027-01-31 08:00"
        ) from None
    return When(at=float(math.floor(at)), timezone=timezone)


def due(text: str, now: float, timezone: str = "UTC") -> When:
    """What somebody says: `in 20 minutes`, a cron expression, or a date and time."""
    if found := _IN.fullmatch(text.strip()):
        seconds = int(found[1]) * _UNITS[found[2].lower()]
        zone(timezone)
        return When(at=float(math.ceil(now + seconds)), timezone=timezone)
    if text.strip().startswith("@") or len(text.split()) >= 5:
        return by_cron(text, timezone)
    try:
        return once(text, timezone)
    except ValueError as error:
        raise ValueError(f"{error}, in 20 minutes, or a cron expression 0 8 * * mon-fri") from None


def following(when: When, after: float) -> float | None:
    """The first time it is due behind a moment; None where there is none."""
    if when.cron is None:
        return when.at if when.at is not None and when.at > after else None
    try:
        minute, hour, *_ = when.cron.split()
        if minute.startswith("*") or hour.startswith("*"):
            return _by_time(when, after)
        return _by_clock(when, after)
    except OverflowError:
        return None


def newest(when: When, first: float, upto: float) -> float:
    """The last time it is due up to a moment, if `first`, at which it is, is not behind that."""
    span = 3600.0
    while True:
        start, last = max(first, upto - span), None
        found = following(when, start)
        while found is not None and found <= upto:
            last = found
            found = following(when, last)
        if last is not None:
            return last
        if start <= first:
            return first
        span *= 8


def shown(at: float, timezone: str) -> str:
    """A moment as a clock on that zone's wall shows it."""
    return f"{wall(at, zone(timezone)):%Y-%m-%d %H:%M} {timezone}"


def _by_clock(when: When, after: float) -> float | None:
    """Times of the day: in the order of the clock, each at the first moment it is shown."""
    where = zone(when.timezone)
    for time in _walls(when, wall(after, where)):
        at = first_moment(time, where)
        if at > after:
            return at
    return None


def _by_time(when: When, after: float) -> float | None:
    """What recurs within the day: at each moment at which the clock shows a time that fits."""
    where = zone(when.timezone)
    if shifts_near(after, where, NEAR):
        # An hour that comes again shows times that the clock has passed already: go by the minute.
        fits = _walls(when, wall(after, where))
        minute = math.floor(after / 60) * 60.0
        for _ in range(int(2 * NEAR / 60)):
            minute += 60.0
            if _is_at(fits, wall(minute, where)):
                return minute
        after = minute
    for time in _walls(when, wall(after, where)):
        if found := moments(time, where):
            return found[0]
    return None


def _is_at(fits: CronSim, time: datetime) -> bool:
    return (
        time.minute in fits.minutes
        and time.hour in fits.hours
        and time.month in fits.months
        and fits.match_day(time.date())
    )


def _walls(when: When, start: datetime) -> CronSim:
    from cronsim import CronSim

    # Without a zone: it goes by the clock alone, and what that means in time is said here. Its own
    # reading of zones goes back in time within an hour that comes twice, and by whole hours past
    # changes of half an hour.
    return CronSim(when.cron or "", start)
