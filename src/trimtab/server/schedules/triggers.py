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

from trimtab.agent.config.cron_syntax import normalise_cron
from trimtab.server.schedules.time_zones import (
    find_first_wall_clock_timestamp,
    find_wall_clock_timestamps,
    is_near_clock_change,
    load_time_zone,
    to_wall_clock,
)

if TYPE_CHECKING:
    from cronsim import CronSim

CRON_PACKAGE_HINT = "schedules need one more package: pip install 'trimtab[serve]'"
MAX_CLOCK_CHANGE_S = 3 * 3600.0
"""Seconds that clocks are changed by at most."""

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_RELATIVE_TIME = re.compile(r"in\s+(\d{1,6})\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Made by `parse_cron_trigger` and `once`, which check it."""

    cron: str | None = None
    """Five fields; None where it is due once."""
    at: float | None = None
    """The one time, in whole seconds since the epoch; None where it is due by cron."""
    timezone: str = "UTC"
    """Whose clock is meant."""

    def __str__(self) -> str:
        return (
            self.cron
            if self.cron is not None
            else format_time_in_zone(self.at or 0.0, self.timezone)
        )


def parse_cron_trigger(text: str, timezone: str = "UTC") -> Trigger:
    """Due by cron. Raises `ValueError` where it is not one, or never due."""
    load_time_zone(timezone)
    try:
        written = normalise_cron(text)
    except ModuleNotFoundError as error:
        raise ValueError(CRON_PACKAGE_HINT) from error
    return Trigger(cron=written, timezone=timezone)


def parse_one_time_trigger(text: str, timezone: str = "UTC") -> Trigger:
    """Due once, at a date and a time; its own offset from UTC counts, if it has one."""
    where = load_time_zone(timezone)
    try:
        said = datetime.fromisoformat(text.strip())
        at = (
            said.timestamp()
            if said.tzinfo is not None
            else find_first_wall_clock_timestamp(said, where)
        )
        # Whatever is far off cannot be shown on that zone's clock.
        to_wall_clock(at + 86_400, where)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text[:60]!r} is no date and time; it looks like 2027-01-31 08:00"
        ) from None
    return Trigger(at=float(math.floor(at)), timezone=timezone)


def parse_trigger(text: str, now: float, timezone: str = "UTC") -> Trigger:
    """What somebody says: `in 20 minutes`, a cron expression, or a date and time."""
    if found := _RELATIVE_TIME.fullmatch(text.strip()):
        seconds = int(found[1]) * _UNIT_SECONDS[found[2].lower()]
        load_time_zone(timezone)
        return Trigger(at=float(math.ceil(now + seconds)), timezone=timezone)
    if text.strip().startswith("@") or len(text.split()) >= 5:
        return parse_cron_trigger(text, timezone)
    try:
        return parse_one_time_trigger(text, timezone)
    except ValueError as error:
        raise ValueError(f"{error}, in 20 minutes, or a cron expression 0 8 * * mon-fri") from None


def find_next_due_time(trigger: Trigger, after: float) -> float | None:
    """The first time it is due behind a moment; None where there is none."""
    if trigger.cron is None:
        return trigger.at if trigger.at is not None and trigger.at > after else None
    try:
        minute, hour, *_ = trigger.cron.split()
        if minute.startswith("*") or hour.startswith("*"):
            return _next_by_elapsed_time(trigger, after)
        return _next_by_wall_clock(trigger, after)
    except OverflowError:
        return None


def find_last_due_time(trigger: Trigger, first: float, until: float) -> float:
    """The last time it is due up to a moment, if `first`, at which it is, is not behind that."""
    span = 3600.0
    while True:
        start, last = max(first, until - span), None
        found = find_next_due_time(trigger, start)
        while found is not None and found <= until:
            last = found
            found = find_next_due_time(trigger, last)
        if last is not None:
            return last
        if start <= first:
            return first
        span *= 8


def format_time_in_zone(timestamp: float, timezone: str) -> str:
    """A moment as a clock on that zone's wall shows it."""
    return f"{to_wall_clock(timestamp, load_time_zone(timezone)):%Y-%m-%d %H:%M} {timezone}"


def _next_by_wall_clock(trigger: Trigger, after: float) -> float | None:
    """Times of the day: in the order of the clock, each at the first moment it is shown."""
    where = load_time_zone(trigger.timezone)
    for time in _iterate_cron_times(trigger, to_wall_clock(after, where)):
        at = find_first_wall_clock_timestamp(time, where)
        if at > after:
            return at
    return None


def _next_by_elapsed_time(trigger: Trigger, after: float) -> float | None:
    """What recurs within the day: at each moment at which the clock shows a time that fits."""
    where = load_time_zone(trigger.timezone)
    if is_near_clock_change(after, where, MAX_CLOCK_CHANGE_S):
        # An hour that comes again shows times that the clock has passed already: go by the minute.
        fits = _iterate_cron_times(trigger, to_wall_clock(after, where))
        minute = math.floor(after / 60) * 60.0
        for _ in range(int(2 * MAX_CLOCK_CHANGE_S / 60)):
            minute += 60.0
            if _matches_cron(fits, to_wall_clock(minute, where)):
                return minute
        after = minute
    for time in _iterate_cron_times(trigger, to_wall_clock(after, where)):
        if found := find_wall_clock_timestamps(time, where):
            return found[0]
    return None


def _matches_cron(cron: CronSim, wall_time: datetime) -> bool:
    return (
        wall_time.minute in cron.minutes
        and wall_time.hour in cron.hours
        and wall_time.month in cron.months
        and cron.match_day(wall_time.date())
    )


def _iterate_cron_times(trigger: Trigger, start: datetime) -> CronSim:
    from cronsim import CronSim

    # Without a zone: it goes by the clock alone, and what that means in time is said here. Its own
    # reading of zones goes back in time within an hour that comes twice, and by whole hours past
    # changes of half an hour.
    return CronSim(trigger.cron or "", start)
