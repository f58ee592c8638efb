"""A fork: the same past up to a position, and nothing after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trimtab.core.event import Body, Erase, Event, Fork, Retention
from trimtab.core.snapshot import Snapshot
from trimtab.core.window import Window


def held(window: Window, events: Iterable[Event]) -> tuple[Snapshot | None, list[Event]]:
    """What a window can be folded from again: its base, if it has one, and in order the events
    that the base names and those since."""
    base = window.base if window.base.seq else None
    return base, [*window.kept.values(), *events]


def branch(later: Iterable[Event], *, parent: str, at: int) -> list[Body]:
    """What a copy of the log up to `at` goes on with, given the parent's events behind it.

    What was destroyed since is missing from the copy as well, and the copy must say so.
    """
    bodies: list[Body] = []
    for event in later:
        match event.body:
            case Erase() as erase if erase.message <= at:
                bodies.append(erase)
            case Retention() as rule:
                bodies.append(replace(rule, before=min(rule.before, at + 1)))
            case _:
                pass
    return [*bodies, Fork(parent=parent, position=at)]
