"""Wall clocks and moments: which moments a wall clock shows a time at, and where it skips one."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo


def zone(name: str) -> ZoneInfo:
    """The time zone of that name. Raises `ValueError` where there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {name[:60]!r}; it looks like Europe/Zurich or UTC"
        ) from None


def wall(at: float, where: ZoneInfo) -> datetime:
    """What a clock on the wall shows at a moment."""
    return datetime.fromtimestamp(at, where).replace(tzinfo=None, fold=0)


def moments(shown: datetime, where: ZoneInfo) -> list[float]:
    """When a clock on the wall shows this: once, twice where it is set back, or never."""
    found: list[float] = []
    for fold in (0, 1):
        at = shown.replace(tzinfo=where, fold=fold).timestamp()
        if at not in found and wall(at, where) == shown:
            found.append(at)
    return found


def first_moment(shown: datetime, where: ZoneInfo) -> float:
    """When a clock on the wall shows this first; right after the gap where it never does."""
    found = moments(shown, where)
    return found[0] if found else _behind_gap(shown, where)


def shifts_near(at: float, where: ZoneInfo, seconds: float) -> bool:
    """Whether clocks are changed within so many seconds of a moment."""
    return _offset(at - seconds, where) != _offset(at + seconds, where)


def _behind_gap(shown: datetime, where: ZoneInfo) -> float:
    # By the old offset it lies behind the change, by the new one before it.
    after = int(shown.replace(tzinfo=where, fold=0).timestamp())
    before = int(shown.replace(tzinfo=where, fold=1).timestamp())
    old = _offset(before, where)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(middle, where) == old:
            before = middle
        else:
            after = middle
    return float(after)


def _offset(at: float, where: ZoneInfo) -> object:
    return datetime.fromtimestamp(at, UTC).astimezone(where).utcoffset()
