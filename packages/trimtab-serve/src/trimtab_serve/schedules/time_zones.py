"""Convert between timestamps and local times, including times that a clock change skips or
repeats."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo


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
