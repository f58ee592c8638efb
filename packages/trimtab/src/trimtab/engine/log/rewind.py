"""Which events are in force after rewinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.engine.log.event import Event, Rewind


def select_events_in_force(events: Sequence[Event], position: int) -> list[Event]:
    """Return the events that make up the fold at a position, after all earlier rewinds."""
    rewinds = [(event.seq, event.body.to) for event in events if isinstance(event.body, Rewind)]
    stretches = list(_list_spans_in_force(rewinds, position))
    live: list[Event] = []
    for event in events:
        while stretches and event.seq > stretches[-1][1]:
            stretches.pop()
        if stretches and event.seq >= stretches[-1][0]:
            live.append(event)
    return live


def is_event_in_force(event_seq: int, rewinds: Sequence[tuple[int, int]]) -> bool:
    """Whether an event is in force, given the position and the target of each rewind."""
    return any(
        first <= event_seq <= last for first, last in _list_spans_in_force(rewinds, float("inf"))
    )


def list_undone_spans(rewinds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first and last position of each undone span, ascending. Each span ends with its
    rewind."""
    spans: list[tuple[int, int]] = []
    for at, to in reversed(rewinds):
        if not spans or at < spans[-1][0]:
            spans.append((to + 1, at))
    return spans[::-1]


def _list_spans_in_force(
    rewinds: Sequence[tuple[int, int]], end: float
) -> Iterator[tuple[float, float]]:
    """Yield the first and last position of each span in force at `end`, newest first. No span
    contains a rewind."""
    for at, to in reversed(rewinds):
        if at > end:
            continue  # undone itself, or later
        yield at + 1, end
        end = to
    yield 1, end


def find_undoing_rewind(
    event_seq: int, rewinds: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Return position and target of the rewind that undid an event; None if none did."""
    end: float = float("inf")
    for at, to in reversed(rewinds):
        if at > end:
            continue
        if to < event_seq <= at:
            return at, to
        end = to
    return None
