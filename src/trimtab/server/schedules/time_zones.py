"""Wall clocks and moments: which moments a wall clock shows a time at, and where it skips one."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo


def load_time_zone(name: str) -> ZoneInfo:
    """The time zone of that name. Raises `ValueError` where there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {name[:60]!r}; it looks like Europe/Zurich or UTC"
        ) from None


def to_wall_clock(timestamp: float, zone: ZoneInfo) -> datetime:
    """What a clock on the wall shows at a moment."""
    return datetime.fromtimestamp(timestamp, zone).replace(tzinfo=None, fold=0)


def find_wall_clock_timestamps(wall_time: datetime, zone: ZoneInfo) -> list[float]:
    """When a clock on the wall shows this: once, twice where it is set back, or never."""
    found: list[float] = []
    for fold in (0, 1):
        at = wall_time.replace(tzinfo=zone, fold=fold).timestamp()
        if at not in found and to_wall_clock(at, zone) == wall_time:
            found.append(at)
    return found


def find_first_wall_clock_timestamp(wall_time: datetime, zone: ZoneInfo) -> float:
    """When a clock on the wall shows this first; right after the gap where it never does."""
    found = find_wall_clock_timestamps(wall_time, zone)
    return found[0] if found else _find_timestamp_after_gap(wall_time, zone)


def is_near_clock_change(timestamp: float, zone: ZoneInfo, within_s: float) -> bool:
    """Whether clocks are changed within so many seconds of a moment."""
    return _utc_offset(timestamp - within_s, zone) != _utc_offset(timestamp + within_s, zone)


def _find_timestamp_after_gap(wall_time: datetime, zone: ZoneInfo) -> float:
    # By the old offset it lies behind the change, by the new one before it.
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
