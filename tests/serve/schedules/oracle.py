"""When a cron expression is due, found by looking at every minute: slow, and plain to see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def due(cron: str, zone: str, first: datetime, minutes: int) -> list[float]:
    """The moments behind `first`, a whole minute in UTC, within so many minutes."""
    where, times = ZoneInfo(zone), list[float]()
    sets, has_fixed_time = _sets(cron), not any(field[0] == "*" for field in cron.split()[:2])
    before = first.astimezone(where)
    for step in range(1, minutes + 1):
        now = (first + timedelta(minutes=step)).astimezone(where)
        if (_shown_again(now) and has_fixed_time) or not _fits(cron, sets, now):
            # What the clock has skipped since the minute before is due now.
            skipped_times = _skipped(before, now) if has_fixed_time else []
            hit = any(_fits(cron, sets, wall) for wall in skipped_times)
        else:
            hit = True
        if hit:
            times.append(now.timestamp())
        before = now
    return times


def _shown_again(now: datetime) -> bool:
    return now.fold == 1


def _skipped(before: datetime, now: datetime) -> list[datetime]:
    wall, end = before.replace(tzinfo=None, fold=0), now.replace(tzinfo=None, fold=0)
    times: list[datetime] = []
    while (wall := wall + timedelta(minutes=1)) < end:
        times.append(wall)
    return times


def _fits(cron: str, sets: list[set[int]], now: datetime) -> bool:
    minute, hour, day, month, weekday = sets
    if now.minute not in minute or now.hour not in hour or now.month not in month:
        return False
    by_day, by_weekday = now.day in day, now.isoweekday() % 7 in {d % 7 for d in weekday}
    fields = cron.split()
    if fields[2][0] == "*" or fields[4][0] == "*":
        return by_day and by_weekday
    return by_day or by_weekday


def _sets(cron: str) -> list[set[int]]:
    return [
        {value for part in field.split(",") for value in _part(part, low, high)}
        for field, (low, high) in zip(cron.split(), RANGES, strict=True)
    ]


def _part(part: str, low: int, high: int) -> range:
    span, _, step = part.partition("/")
    if span == "*":
        first, last = low, high
    elif "-" in span:
        first, last = (int(end) for end in span.split("-"))
    else:
        first, last = int(span), high if step else int(span)
    return range(first, last + 1, int(step or 1))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
