"""Replies that wait to be sent: in order for each session and channel, none twice at a time."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from trimtab.server.queue.inbound_outbound import OutboundMessage


@dataclass(slots=True)
class _Lane:
    """The replies of one session through one channel; the first alone may be sent."""

    replies: dict[int, tuple[OutboundMessage, int]] = field(
        default_factory=dict[int, "tuple[OutboundMessage, int]"]
    )
    """By number, in order, each with its size in bytes."""
    until: float = 0.0
    """When the first may be sent, in seconds since the epoch."""
    leased: bool = False
    """Whether it waits because somebody is sending it."""


class WaitingReplies:
    """Finds what is due without looking at all that waits."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._lane_of: dict[int, tuple[str, str]] = {}
        self._channels_of: dict[str, set[str]] = {}
        self._due: dict[str, list[tuple[float, int]]] = {}

    def add(self, reply: OutboundMessage, size: int, *, until: float = 0.0) -> None:
        """A reply to be sent behind the others of its lane, or before those that came later."""
        name = (reply.session, reply.route.channel)
        lane = self._lanes.setdefault(name, _Lane())
        self._lane_of[reply.number] = name
        self._channels_of.setdefault(reply.session, set()).add(reply.route.channel)
        lane.replies[reply.number] = (reply, size)
        if len(lane.replies) > 1 and reply.number < _second_last_number(lane):
            lane.replies = dict(sorted(lane.replies.items()))
        if _first_number(lane) == reply.number:
            self._set_lane_due(name, until)

    def lease_due(
        self, channels: Collection[str], *, limit: int, now: float, lease_s: float
    ) -> list[OutboundMessage]:
        """What may be sent now, the one that waits longest first; not again before `lease_s`
        ends."""
        found: dict[int, OutboundMessage] = {}
        for channel in channels:
            due = self._due.get(channel, [])
            while due and due[0][0] <= now and len(found) < limit:
                until, number = heapq.heappop(due)
                name = self._lane_of.get(number)
                lane = self._lanes.get(name) if name is not None else None
                # What was put off or sent since stands there again, or no longer.
                if (
                    name is None
                    or lane is None
                    or lane.until != until
                    or _first_number(lane) != number
                ):
                    continue
                found[number] = lane.replies[number][0]
        for number in found:
            name = self._lane_of[number]
            self._set_lane_due(name, now + lease_s)
            self._lanes[name].leased = True
        return list(found.values())

    def postpone(self, number: int, until: float) -> None:
        """Not before that time."""
        name = self._lane_of.get(number)
        if name is not None and _first_number(self._lanes[name]) == number:
            self._set_lane_due(name, until)

    def change_attempts(self, number: int, by: int) -> None:
        """So many more deliveries of which nobody knows whether they arrived."""
        name = self._lane_of.get(number)
        if name is not None:
            reply, size = self._lanes[name].replies[number]
            more = replace(reply, attempts=max(0, reply.attempts + by))
            self._lanes[name].replies[number] = (more, size)

    def remove(self, number: int) -> tuple[OutboundMessage, int] | None:
        """Take a reply out, with its size; the next of its lane may be sent at once."""
        name = self._lane_of.pop(number, None)
        if name is None:
            return None
        lane = self._lanes[name]
        first = _first_number(lane) == number
        found = lane.replies.pop(number)
        if not lane.replies:
            del self._lanes[name]
            self._channels_of[name[0]].discard(name[1])
            if not self._channels_of[name[0]]:
                del self._channels_of[name[0]]
        elif first:
            self._set_lane_due(name, 0.0)
        return found

    def replies_in_session(self, session: str) -> list[OutboundMessage]:
        """Replies of a session."""
        channels = self._channels_of.get(session, ())
        return [
            one for channel in channels for one, _ in self._lanes[session, channel].replies.values()
        ]

    def all_replies(self) -> Iterator[tuple[OutboundMessage, float]]:
        """All that waits, lane by lane, and until when; what is lent now is not after a crash."""
        for lane in self._lanes.values():
            until = 0.0 if lane.leased else lane.until
            for reply, _ in lane.replies.values():
                yield reply, until
                until = 0.0

    def _set_lane_due(self, lane_key: tuple[str, str], until: float) -> None:
        lane = self._lanes[lane_key]
        lane.until, lane.leased = until, False
        due = self._due.setdefault(lane_key[1], [])
        heapq.heappush(due, (until, _first_number(lane)))
        if len(due) > 64 and len(due) > 4 * len(self._lanes):
            # What is void would else stay until its time comes.
            live = [
                (one.until, _first_number(one))
                for n, one in self._lanes.items()
                if n[1] == lane_key[1]
            ]
            heapq.heapify(live)
            self._due[lane_key[1]] = live


def _first_number(lane: _Lane) -> int:
    return next(iter(lane.replies))


def _second_last_number(lane: _Lane) -> int:
    numbers = reversed(lane.replies)
    next(numbers)
    return next(numbers)
