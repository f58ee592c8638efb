"""A fork: a copy of a session's history up to a position, with nothing after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trimtab.engine.log.event import Event, EventBody, Fork, PayloadErasure, RetentionErasure
from trimtab.engine.text.arguments import describe_wrong_value


def resolve_fork_position(fork_seq: int | None, oldest_seq_in_memory: int, last_seq: int) -> int:
    """Return the position of a fork. None stands for the last position.

    Raises:
        ValueError: The position is outside the log, or the history before it is no longer in
            memory.
    """
    if fork_seq is not None and (isinstance(fork_seq, bool) or not isinstance(fork_seq, int)):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(describe_wrong_value("at", fork_seq, "a position in the log, or None"))
    fork_seq = last_seq if fork_seq is None else fork_seq
    first = max(1, oldest_seq_in_memory)
    if not first <= fork_seq <= last_seq:
        past = "; earlier events are no longer in memory: fork the session in its store"
        advice = past if 0 < fork_seq < oldest_seq_in_memory else ""
        raise ValueError(
            f"cannot fork at {fork_seq}; positions go from {first} to {last_seq}{advice}"
        )
    return fork_seq


def build_events_closing_fork_copy(
    parent_events_after: Iterable[Event], *, parent_session: str, fork_position: int
) -> list[EventBody]:
    """Return the events that end a fork's copy of the log up to `fork_position`.

    Content that the parent destroyed later is also missing from the copy, and the copy must record
    that. `parent_events_after` are the parent's events after the position.
    """
    bodies: list[EventBody] = []
    for event in parent_events_after:
        match event.body:
            case PayloadErasure() as erase if erase.message <= fork_position:
                past_calls = tuple(call for call in erase.calls if call <= fork_position)
                bodies.append(replace(erase, calls=past_calls))
            case RetentionErasure() as rule:
                bodies.append(replace(rule, before=min(rule.before, fork_position + 1)))
            case _:
                pass
    return [*bodies, Fork(parent=parent_session, position=fork_position)]
