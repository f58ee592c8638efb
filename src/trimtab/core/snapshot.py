"""A fold's state at a position, by name: it says which events are still needed and copies none.

A snapshot holds numbers and positions, never what was said. Whoever opens a session reads the
newest one, the events it names and those behind it, whatever the length of the log. It can be
thrown away: the log gives the same window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = 5
"""Of the stored shape. Unlike an event's, an old one is not upgraded: it is left unused."""


class NewerSnapshot(ValueError):
    """A snapshot that a later release wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    seq: int
    """The last event that it folds."""
    spans: tuple[tuple[int, int], ...] = ()
    """First and last positions of the events at or before `seq` that the window still needs."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All else the window knows, as plain JSON: totals, positions, learned limits."""


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """One flat mapping of plain JSON values."""
    spans = [list(span) for span in snapshot.spans]
    return {"v": VERSION, "seq": snapshot.seq, "spans": spans, **snapshot.state}


def snapshot_from_json(data: Mapping[str, Any]) -> Snapshot | None:
    """The inverse; None for an older shape, which is left unused. A newer one is refused."""
    version = data.get("v")
    if not isinstance(version, int) or version < VERSION:
        return None
    if version > VERSION:
        raise NewerSnapshot(
            f"the snapshot at event {data.get('seq')} has format version {version}; this release "
            f"reads up to {VERSION}: upgrade trimtab to open this session"
        )
    state = {key: value for key, value in data.items() if key not in ("v", "seq", "spans")}
    spans = tuple((first, last) for first, last in data["spans"])
    return Snapshot(seq=data["seq"], spans=spans, state=state)
