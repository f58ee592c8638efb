"""A fork: the same past up to a position, and nothing after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trimtab.log.event import Event, EventBody, Fork, PayloadErasure, RetentionErasure


def build_fork_bodies(
    later_events: Iterable[Event], *, parent_session: str, position: int
) -> list[EventBody]:
    """What a copy of the log up to `at` goes on with, given the parent's events behind it.

    What was destroyed since is missing from the copy as well, and the copy must say so.
    """
    bodies: list[EventBody] = []
    for event in later_events:
        match event.body:
            case PayloadErasure() as erase if erase.message <= position:
                bodies.append(erase)
            case RetentionErasure() as rule:
                bodies.append(replace(rule, before=min(rule.before, position + 1)))
            case _:
                pass
    return [*bodies, Fork(parent=parent_session, position=position)]
