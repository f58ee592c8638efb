"""Which events are in force after rewinds."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.core.event import Event, Rewind


def in_force(past: Sequence[Event], to: int) -> list[Event]:
    """The events that make up the fold at a position, earlier rewinds carried out."""
    live: list[Event] = []
    for event in past:
        if event.seq > to:
            break
        if isinstance(event.body, Rewind):
            live = in_force(past, event.body.to)
        else:
            live.append(event)
    return live
