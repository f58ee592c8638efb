"""Replies that wait to be sent: in order for each session and door, none twice at a time."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from trimtab.worker.letters import Outbound


@dataclass(slots=True)
class _Lane:
    """The replies of one session through one door; the first alone may be sent."""

    replies: dict[int, tuple[Outbound, int]] = field(
        default_factory=dict[int, "tuple[Outbound, int]"]
    )
    """By number, in order, each with its size in bytes."""
    until: float = 0.0
    """When the first may be sent, in seconds since the epoch."""
    lent: bool = False
    """Whether it waits because somebody is sending it."""


class Outbox:
    """Finds what is due without looking at all that waits."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._lane_of: dict[int, tuple[str, str]] = {}
        self._doors_of: dict[str, set[str]] = {}
        self._due: dict[str, list[tuple[float, int]]] = {}

    def add(self, reply: Outbound, size: int, *, until: float = 0.0) -> None:
        """A reply to be sent behind the others of its lane, or before those that came later."""
        name = (reply.session, reply.route.door)
        lane = self._lanes.setdefault(name, _Lane())
        self._lane_of[reply.number] = name
        self._doors_of.setdefault(reply.session, set()).add(reply.route.door)
        lane.replies[reply.number] = (reply, size)
        if len(lane.replies) > 1 and reply.number < _last_but_one(lane):
            lane.replies = dict(sorted(lane.replies.items()))
        if _first(lane) == reply.number:
            self._wait(name, until)

    def lend(
        self, doors: Collection[str], *, limit: int, now: float, lease: float
    ) -> list[Outbound]:
        """What may be sent now, the one that waits longest first; not again before `lease` ends."""
        found: dict[int, Outbound] = {}
        for door in doors:
            due = self._due.get(door, [])
            while due and due[0][0] <= now and len(found) < limit:
                until, number = heapq.heappop(due)
                name = self._lane_of.get(number)
                lane = self._lanes.get(name) if name is not None else None
                # What was put off or sent since stands there again, or no longer.
                if name is None or lane is None or lane.until != until or _first(lane) != number:
                    continue
                found[number] = lane.replies[number][0]
        for number in found:
            name = self._lane_of[number]
            self._wait(name, now + lease)
            self._lanes[name].lent = True
        return list(found.values())

    def put_off(self, number: int, until: float) -> None:
        """Not before that time."""
        name = self._lane_of.get(number)
        if name is not None and _first(self._lanes[name]) == number:
            self._wait(name, until)

    def raise_attempts(self, number: int, by: int) -> None:
        """So many more deliveries of which nobody knows whether they arrived."""
        name = self._lane_of.get(number)
        if name is not None:
            reply, size = self._lanes[name].replies[number]
            more = replace(reply, attempts=max(0, reply.attempts + by))
            self._lanes[name].replies[number] = (more, size)

    def remove(self, number: int) -> tuple[Outbound, int] | None:
        """Take a reply out, with its size; the next of its lane may be sent at once."""
        name = self._lane_of.pop(number, None)
        if name is None:
            return None
        lane = self._lanes[name]
        first = _first(lane) == number
        found = lane.replies.pop(number)
        if not lane.replies:
            del self._lanes[name]
            self._doors_of[name[0]].discard(name[1])
            if not self._doors_of[name[0]]:
                del self._doors_of[name[0]]
        elif first:
            self._wait(name, 0.0)
        return found

    def of(self, session: str) -> list[Outbound]:
        """Replies of a session."""
        doors = self._doors_of.get(session, ())
        return [one for door in doors for one, _ in self._lanes[session, door].replies.values()]

    def all(self) -> Iterator[tuple[Outbound, float]]:
        """All that waits, lane by lane, and until when; what is lent now is not after a crash."""
        for lane in self._lanes.values():
            until = 0.0 if lane.lent else lane.until
            for reply, _ in lane.replies.values():
                yield reply, until
                until = 0.0

    def _wait(self, name: tuple[str, str], until: float) -> None:
        lane = self._lanes[name]
        lane.until, lane.lent = until, False
        due = self._due.setdefault(name[1], [])
        heapq.heappush(due, (until, _first(lane)))
        if len(due) > 64 and len(due) > 4 * len(self._lanes):
            # What is void would else stay until its time comes.
            live = [(one.until, _first(one)) for n, one in self._lanes.items() if n[1] == name[1]]
            heapq.heapify(live)
            self._due[name[1]] = live


def _first(lane: _Lane) -> int:
    return next(iter(lane.replies))


def _last_but_one(lane: _Lane) -> int:
    numbers = reversed(lane.replies)
    next(numbers)
    return next(numbers)
