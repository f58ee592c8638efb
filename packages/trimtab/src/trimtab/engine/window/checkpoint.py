"""The start of a window: a snapshot, the events that it names, and all later events.

A snapshot is the state of a fold at a position. It names the events that are still needed and
copies none of them. It holds numbers and positions, never text of the conversation. To open a
session, read its newest snapshot, the events that it names and those after it, whatever the length
of the log. A snapshot can be deleted, because the log gives the same window.

At a checkpoint a window removes hidden content from memory and continues from the rest. A snapshot
names the visible groups, their edits, and the totals of what left memory. Together with the named
events it gives the same window as the whole log: the same requests and the same decisions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from trimtab.engine.log.event import (
    Edit,
    Event,
    EventBody,
    MessageAdded,
    PayloadErasure,
    Pin,
    RetentionErasure,
    Rewind,
    dump_canonical_json,
)
from trimtab.engine.log.rewind import select_events_in_force
from trimtab.engine.window.structure import Entry, Group
from trimtab.errors import HistoryNotInMemory, NewerSnapshotError

SNAPSHOT_VERSION = 1
"""Version of the stored format. A snapshot of an earlier format is ignored: the log gives the same
window. It stays 1 until the first release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a window at a position of its log, so that it opens without the whole log."""

    seq: int
    """The last event that the snapshot includes."""
    spans: tuple[tuple[int, int], ...] = ()
    """First and last positions of the events up to `seq` that the window still needs."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The rest of the window's state as plain JSON: totals, positions, learned limits."""

    def named_positions(self) -> list[int]:
        """Return the positions of `spans`, one by one."""
        return [seq for first, last in self.spans for seq in range(first, last + 1)]


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as one flat mapping of plain JSON values."""
    spans = [list(span) for span in snapshot.spans]
    return {"version": SNAPSHOT_VERSION, "seq": snapshot.seq, "spans": spans, **snapshot.state}


def snapshot_from_json(data: Mapping[str, Any]) -> Snapshot | None:
    """Return the snapshot of `snapshot_to_json`'s output; None for an earlier format, which is
    ignored.

    Raise `NewerSnapshotError` for a newer format.
    """
    version = data.get("version")
    if not isinstance(version, int) or version < SNAPSHOT_VERSION:
        return None
    if version > SNAPSHOT_VERSION:
        raise NewerSnapshotError(
            f"the snapshot at event {data.get('seq')} has format version {version}; this release "
            f"reads up to {SNAPSHOT_VERSION}: upgrade trimtab to open this session"
        )
    state = {key: value for key, value in data.items() if key not in ("version", "seq", "spans")}
    spans = tuple((first, last) for first, last in data["spans"])
    return Snapshot(seq=data["seq"], spans=spans, state=state)


MAX_REMEMBERED_REWINDS = 256
"""Number of newest rewinds to remember."""


class Base:
    """The start of the fold, and what it must remember outside the conversation."""

    def __init__(self) -> None:
        self.snapshot = Snapshot(seq=0)
        """The start of the fold. Hidden messages before it are no longer in memory."""
        self.snapshot_events: dict[int, Event] = {}
        """The events that the snapshot names, by position."""
        self.events_since_snapshot: list[Event] = []
        """Messages, edits, pins and rewinds since the snapshot."""
        self.bytes_since_snapshot = 0
        """Bytes of the messages among them."""
        self.erased_ranges: list[tuple[int, int, int | None, int]] = []
        """Erased ranges: first and last position, part or None for all, and the position of the
        erasure."""
        self.rewinds: list[tuple[int, int]] = []
        """The position and the target of each rewind."""
        self.seq_by_idempotency_key: dict[str, int] = {}
        """By the sender's idempotency key: the position of the message."""
        self.sizes_are_recounted = False
        """True if another counter measured the sizes in the events."""
        self.refold_count = 1
        """Rises whenever the messages are folded again. References into the window are then
        invalid."""
        self.evicted_totals: dict[str, tuple[int, int]] = {}
        """By kind of edit: hidden messages that left memory, and their tokens."""
        self.last_evicted_seq = 0
        """The last position that left memory."""

    def copy(self) -> Base:
        """Return a copy that can record events independently."""
        twin = copy(self)
        twin.snapshot_events = dict(self.snapshot_events)
        twin.events_since_snapshot = [*self.events_since_snapshot]
        twin.erased_ranges = [*self.erased_ranges]
        twin.rewinds = [*self.rewinds]
        twin.seq_by_idempotency_key = dict(self.seq_by_idempotency_key)
        return twin

    def record(self, event: Event) -> None:
        """Keep a message, an edit, a pin or a rewind, so that it can be folded again."""
        self.events_since_snapshot.append(event)
        if isinstance(event.body, MessageAdded):
            self.bytes_since_snapshot += sum(size.bytes for size in event.body.sizes)
        self.remember_key(event)

    def remember_key(self, event: Event) -> None:
        """Remember the position of a message with an idempotency key."""
        if isinstance(event.body, MessageAdded) and event.body.key is not None:
            self.seq_by_idempotency_key[event.body.key] = event.seq

    def change_events(self, change: Callable[[Event], Event]) -> None:
        """Replace the kept events by changed ones. An erasure removes content this way."""
        self.events_since_snapshot = [change(event) for event in self.events_since_snapshot]
        self.snapshot_events = {seq: change(event) for seq, event in self.snapshot_events.items()}

    def begin_refold(self, seq: int) -> list[Event]:
        """Return the events since the snapshot that are in force at a position, to fold them
        again."""
        self.refold_count += 1
        events = select_events_in_force(self.events_since_snapshot, seq)
        for event in events:
            self.remember_key(event)
        return events

    def start_from(self, snapshot: Snapshot, events: Mapping[int, Event]) -> None:
        """Start the fold from a snapshot and the events that it names."""
        self.snapshot = snapshot
        self.snapshot_events = dict(events)
        self.events_since_snapshot = []
        self.seq_by_idempotency_key = {}
        self.bytes_since_snapshot = 0
        state = snapshot.state
        self.evicted_totals = {op: (count, tokens) for op, (count, tokens) in state["gone"].items()}
        self.last_evicted_seq = state["gone_last"]

    def find_erasing_event(self, seq: int, part: int | None) -> int | None:
        """Return the event that erased a part, or any part of the message if `part` is None."""
        for first, last, part_of_range, event in self.erased_ranges:
            if first <= seq <= last and (part_of_range is None or part in (None, part_of_range)):
                return event
        return None

    def was_evicted(self, seq: int) -> bool:
        """Whether the position may belong to a message that is no longer in memory."""
        undone = any(to < seq < at for at, to in self.rewinds)
        return 0 < seq <= self.snapshot.seq and (seq <= self.last_evicted_seq or undone)

    def require_targets_in_memory(
        self, body: EventBody, entries: Mapping[int, Entry], groups: Sequence[Group]
    ) -> None:
        """Raise HistoryNotInMemory if an event names something that is no longer in memory."""
        match body:
            case Rewind() if body.to < self.snapshot.seq:
                raise HistoryNotInMemory(body.to)
            case Pin() if body.first == body.last and body.first in entries:
                pass
            case Edit(part=None, op="reveal") | Pin() if 0 < body.first <= self.last_evicted_seq:
                raise HistoryNotInMemory(body.first - 1)
            case Edit(part=int()) if body.first not in entries:
                if 0 < body.first <= self.last_evicted_seq:
                    raise HistoryNotInMemory(body.first - 1)
            case PayloadErasure():
                self._require_groups_in_memory(groups, body.message, body.message)
            case RetentionErasure():
                self._require_groups_in_memory(groups, 1, body.before - 1)
            case _:
                pass

    def _require_groups_in_memory(
        self, groups: Sequence[Group], first_seq: int, last_seq: int
    ) -> None:
        """Raise HistoryNotInMemory if an erasure may split a group that must then be grouped from
        its start."""
        for group in groups:
            if group.first > min(last_seq, self.snapshot.seq):
                return
            if len(group.rounds) > 1 and group.last >= first_seq:
                raise HistoryNotInMemory(group.first - 1)

    def collect_refold_source(
        self, events_since_base: Iterable[Event]
    ) -> tuple[Snapshot | None, list[Event]]:
        """Return what a window can be folded from again: the snapshot, if any, and the events in
        order."""
        base = self.snapshot if self.snapshot.seq else None
        return base, [*self.snapshot_events.values(), *events_since_base]

    def to_state(self, leaving: Sequence[Group]) -> dict[str, Any]:
        """Return the state for the next snapshot, under the stored keys, if these groups leave
        memory."""
        totals_by_op = dict(self.evicted_totals)
        for group in leaving:
            op = group.hidden.op if group.hidden is not None else ""
            count, tokens = totals_by_op.get(op, (0, 0))
            whole = sum(size.tokens for entry in group.entries() for size in entry.sizes)
            totals_by_op[op] = (count + group.message_count, tokens + whole)
        return {
            "recounted": self.sizes_are_recounted,
            "erased": self.erased_ranges,
            "rewinds": self.rewinds,
            "gone": totals_by_op,
            "gone_last": max([self.last_evicted_seq, *(group.last for group in leaving)]),
        }

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, events: Iterable[Event]) -> Base:
        """Return the base of a snapshot and the events that it names."""
        base = cls()
        state = snapshot.state
        base.start_from(snapshot, {e.seq: e for e in events if e.seq <= snapshot.seq})
        base.sizes_are_recounted = state["recounted"]
        base.erased_ranges = [(a, b, part, by) for a, b, part, by in state["erased"]]
        base.rewinds = [(at, to) for at, to in state["rewinds"]]
        return base


def build_snapshot(seq: int, positions: set[int], state: Mapping[str, Any]) -> Snapshot:
    """Return a snapshot of a state at a position that needs the events at some positions."""
    return Snapshot(
        seq=seq, spans=_to_spans(positions), state=json.loads(dump_canonical_json(state))
    )


def _to_spans(positions: set[int]) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    for seq in sorted(positions):
        if spans and spans[-1][1] == seq - 1:
            spans[-1] = (spans[-1][0], seq)
        else:
            spans.append((seq, seq))
    return tuple(spans)
