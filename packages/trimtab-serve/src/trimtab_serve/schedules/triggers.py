"""Compute when something is due: by cron, or once.

Clock changes are handled like in Debian's cron. A fixed time of day (`30 2 * * *`) is due once a
day. If the clock skips that time, it is due right after the gap. If the clock shows it twice, it is
due the first time. A time that recurs within the day (`*/15 * * * *`, `0 * * * *`) follows the
elapsed time. Nothing is due in a gap, and an hour that comes twice counts twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from trimtab_serve.agent.config.cron_syntax import normalise_cron

if TYPE_CHECKING:
    from cronsim import CronSim


def load_time_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name. Raises `ValueError` if it does not exist."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {name[:60]!r}: use a name such as Europe/Zurich or UTC"
        ) from None


def to_wall_clock(timestamp: float, zone: ZoneInfo) -> datetime:
    """Return the local time of a timestamp."""
    return datetime.fromtimestamp(timestamp, zone).replace(tzinfo=None, fold=0)


def find_wall_clock_timestamps(wall_time: datetime, zone: ZoneInfo) -> list[float]:
    """Return the timestamps of a local time: one, two if the clock is set back, or none."""
    timestamps: list[float] = []
    for fold in (0, 1):
        at = wall_time.replace(tzinfo=zone, fold=fold).timestamp()
        if at not in timestamps and to_wall_clock(at, zone) == wall_time:
            timestamps.append(at)
    return timestamps


def find_first_wall_clock_timestamp(wall_time: datetime, zone: ZoneInfo) -> float:
    """Return the first timestamp of a local time. If the clock skips it, return the end of the
    gap."""
    timestamps = find_wall_clock_timestamps(wall_time, zone)
    return timestamps[0] if timestamps else _find_timestamp_after_gap(wall_time, zone)


def is_near_clock_change(timestamp: float, zone: ZoneInfo, within_s: float) -> bool:
    """Whether the clock changes within this number of seconds of a timestamp."""
    return _utc_offset(timestamp - within_s, zone) != _utc_offset(timestamp + within_s, zone)


def _find_timestamp_after_gap(wall_time: datetime, zone: ZoneInfo) -> float:
    # With the old offset it is after the change, with the new one before it.
    after = int(wall_time.replace(tzinfo=zone, fold=0).timestamp())
    before = int(wall_time.replace(tzinfo=zone, fold=1).timestamp())
    old = _utc_offset(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if _utc_offset(middle, zone) == old:
            before = middle
        else:
            after = middle
    return float(after)


def _utc_offset(timestamp: float, zone: ZoneInfo) -> object:
    return datetime.fromtimestamp(timestamp, UTC).astimezone(zone).utcoffset()


CRON_PACKAGE_HINT = "schedules need another package: pip install 'trimtab[serve]'"
MAX_CLOCK_CHANGE_S = 3 * 3600.0
"""Maximum number of seconds of a clock change."""

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_RELATIVE_TIME = re.compile(r"in\s+(\d{1,6})\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A due time. `parse_cron_trigger` and `parse_one_time_trigger` create and check it."""

    cron: str | None = None
    """Five fields. None if it is due once."""
    at: float | None = None
    """The one-time due time, in whole seconds since the epoch. None if it is due by cron."""
    timezone: str = "UTC"
    """Time zone of the cron expression or of the time."""

    def __str__(self) -> str:
        return (
            self.cron
            if self.cron is not None
            else format_time_in_zone(self.at or 0.0, self.timezone)
        )


def parse_cron_trigger(text: str, timezone: str = "UTC") -> Trigger:
    """Parse a cron expression. Raises `ValueError` if it is invalid or never due."""
    load_time_zone(timezone)
    try:
        cron = normalise_cron(text)
    except ModuleNotFoundError as error:
        raise ValueError(CRON_PACKAGE_HINT) from error
    return Trigger(cron=cron, timezone=timezone)


def parse_one_time_trigger(text: str, timezone: str = "UTC") -> Trigger:
    """Parse a date and time that is due once. An offset from UTC in the text takes precedence."""
    where = load_time_zone(timezone)
    try:
        moment = datetime.fromisoformat(text.strip())
        at = (
            moment.timestamp()
            if moment.tzinfo is not None
            else find_first_wall_clock_timestamp(moment, where)
        )
        # A time in the far future or past has no local time in this zone.
        to_wall_clock(at + 86_400, where)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"invalid date and time {text[:60]!r}: use a form such as 2027-01-31 08:00"
        ) from None
    return Trigger(at=float(math.floor(at)), timezone=timezone)


def parse_trigger(text: str, now: float, timezone: str = "UTC") -> Trigger:
    """Parse `in 20 minutes`, a cron expression, or a date and time."""
    if match := _RELATIVE_TIME.fullmatch(text.strip()):
        seconds = int(match[1]) * _UNIT_SECONDS[match[2].lower()]
        at = float(math.ceil(now + seconds))
        where = load_time_zone(timezone)
        try:
            to_wall_clock(at + 86_400, where)
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text[:60]!r} is too far in the future") from None
        return Trigger(at=at, timezone=timezone)
    if text.strip().startswith("@") or len(text.split()) >= 5:
        return parse_cron_trigger(text, timezone)
    try:
        return parse_one_time_trigger(text, timezone)
    except ValueError as error:
        raise ValueError(f"{error}, in 20 minutes, or a cron expression 0 8 * * mon-fri") from None


def find_next_due_time(trigger: Trigger, after: float) -> float | None:
    """Return the first due time after a timestamp. None if there is none."""
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
    """Return the last due time up to `until`. `first` is a due time that is not after `until`."""
    span = 3600.0
    while True:
        start = max(first, until - span)
        last = None
        due = find_next_due_time(trigger, start)
        while due is not None and due <= until:
            last = due
            due = find_next_due_time(trigger, last)
        if last is not None:
            return last
        if start <= first:
            return first
        span *= 8


def format_time_in_zone(timestamp: float, timezone: str) -> str:
    """Return the local time of a timestamp in a time zone."""
    return f"{to_wall_clock(timestamp, load_time_zone(timezone)):%Y-%m-%d %H:%M} {timezone}"


def _next_by_wall_clock(trigger: Trigger, after: float) -> float | None:
    """Return the next fixed time of day, at the first moment at which the clock shows it."""
    where = load_time_zone(trigger.timezone)
    for time in _iterate_cron_times(trigger, to_wall_clock(after, where)):
        at = find_first_wall_clock_timestamp(time, where)
        if at > after:
            return at
    return None


def _next_by_elapsed_time(trigger: Trigger, after: float) -> float | None:
    """Return the next time that recurs within the day, by elapsed time."""
    where = load_time_zone(trigger.timezone)
    if is_near_clock_change(after, where, MAX_CLOCK_CHANGE_S):
        # A repeated hour shows times that the clock has already passed, so check each minute.
        fits = _iterate_cron_times(trigger, to_wall_clock(after, where))
        minute = math.floor(after / 60) * 60.0
        for _ in range(int(2 * MAX_CLOCK_CHANGE_S / 60)):
            minute += 60.0
            if _matches_cron(fits, to_wall_clock(minute, where)):
                return minute
        after = minute
    for time in _iterate_cron_times(trigger, to_wall_clock(after, where)):
        if timestamps := find_wall_clock_timestamps(time, where):
            return timestamps[0]
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

    # CronSim gets local times without a zone, and the conversion to timestamps happens here. With a
    # zone, it goes back in time within a repeated hour, and is wrong after changes of half an hour.
    return CronSim(trigger.cron or "", start)
