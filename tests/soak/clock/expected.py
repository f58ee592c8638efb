"""Which runs a schedule must have, found the slow way: by a look at every minute of the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

GRACE = 60.0
"""Seconds after which a run counts as missed, as docs/schedules.md says."""
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
Span = tuple[float, float]
"""From when to when somebody looks, by the clock there is: seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A schedule."""

    cron: str
    """Numbers, lists, ranges and steps; no names."""
    zone: str
    """Whose clock is meant."""
    missed: str = "once"
    """What becomes of runs that were missed."""
    late: int = 86_400
    """Seconds after which they are not made up for."""


def expected(wanted: Wanted, spans: Sequence[Span]) -> dict[float, float]:
    """By when a run is due: when it must have happened."""
    found: dict[float, float] = {}
    high = spans[0][0]
    for begin, end in spans:
        if begin > high:
            found |= dict.fromkeys(_made_up(wanted, _due(wanted, high, begin), begin), begin)
        # Where the clock was set back, what has been is over.
        low = max(high, begin)
        found |= {due: due for due in _due(wanted, low, end)}
        high = max(high, end)
    return found


def shifts(zone: str, years: Sequence[int]) -> list[tuple[str, float]]:
    """When clocks are set, `spring` for forward and `autumn` for back."""
    where, found = ZoneInfo(zone), list[tuple[str, float]]()
    now = datetime(years[0], 1, 1, tzinfo=UTC)
    while now.year <= years[-1]:
        coming = now + timedelta(minutes=30)
        change = _offset(coming, where) - _offset(now, where)
        if change:
            found.append(("spring" if change > timedelta() else "autumn", coming.timestamp()))
        now = coming
    return found


def _made_up(wanted: Wanted, due: Sequence[float], now: float) -> list[float]:
    allowed = max(GRACE, 0.0 if wanted.missed == "skip" else wanted.late)
    fresh = [one for one in due if one >= now - allowed]
    return fresh if wanted.missed == "all" else fresh[-1:]


def _due(wanted: Wanted, after: float, upto: float) -> list[float]:
    """The moments in (after, upto]."""
    where, fields = ZoneInfo(wanted.zone), wanted.cron.split()
    fixed = not any(field.startswith("*") for field in fields[:2])
    sets = [_set(field, *ends) for field, ends in zip(fields, RANGES, strict=True)]
    minute, found = int(after // 60) * 60, list[float]()
    before = datetime.fromtimestamp(minute, where)
    while (minute := minute + 60) <= upto:
        now = datetime.fromtimestamp(minute, where)
        shown = [now] if not (fixed and now.fold) else []
        shown += _skipped(before, now) if fixed else []
        if any(_fits(fields, sets, one) for one in shown):
            found.append(float(minute))
        before = now
    return found


def _skipped(before: datetime, now: datetime) -> list[datetime]:
    """What a clock on the wall never shows between two minutes."""
    wall, end = before.replace(tzinfo=None, fold=0), now.replace(tzinfo=None, fold=0)
    minutes = int((end - wall) / timedelta(minutes=1))
    return [wall + timedelta(minutes=n) for n in range(1, minutes)]


def _fits(fields: Sequence[str], sets: Sequence[set[int]], now: datetime) -> bool:
    minute, hour, day, month, weekday = sets
    if now.minute not in minute or now.hour not in hour or now.month not in month:
        return False
    by_day, by_weekday = now.day in day, bool({now.isoweekday(), now.isoweekday() % 7} & weekday)
    either = fields[2][0] != "*" and fields[4][0] != "*"
    return by_day or by_weekday if either else by_day and by_weekday


def _set(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = low if first == "*" else int(first)
        end = high if first == "*" or (step and not last) else int(last or first)
        found |= set(range(start, end + 1, int(step or 1)))
    return found


def _offset(at: datetime, where: ZoneInfo) -> timedelta:
    return at.astimezone(where).utcoffset() or timedelta()
