"""A store in memory: it has the same guarantees and errors as the others, but keeps nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NoReturn, Self

from trimtab.engine.log.event import (
    Event,
    Fork,
    MessageAdded,
    TurnProgressRecord,
    dump_event_line,
    load_event_line,
)
from trimtab.engine.recall.search import (
    Query,
    get_searchable_text,
    rank_scored_positions,
    score_text,
)
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import DuplicateIdempotencyKey, PositionTaken, SessionNotFound, StaleOwner
from trimtab.stores.base import NEWER_THAN_ALL, WHOLE_LOG, PositionSpan, SessionListEntry
from trimtab.stores.forks import refuse_pickling
from trimtab.stores.subjects import find_subject
from trimtab.stores.turn_queue import TurnQueue

MAX_EVENTS_AT_ONCE = 500
"""Events of one append after which other coroutines have their turn."""


@dataclass(slots=True, kw_only=True)
class _Log:
    lines: list[str] = field(default_factory=list[str])
    """Events in their stored form, so that an event that cannot be stored also fails here."""
    snapshots: dict[int, Snapshot] = field(default_factory=dict[int, Snapshot])
    """Snapshots by position."""
    keys: dict[str, int] = field(default_factory=dict[str, int])
    """Positions of messages by their idempotency keys."""
    epoch: int = 0
    """The epoch of the newest claimed turn."""
    parent: str | None = None
    """The session that it was last forked from."""
    active: float = 0.0
    """When its newest turn was claimed, or it began."""

    def add(self, event: Event, line: str) -> None:
        self.lines.append(line)
        match event.body:
            case MessageAdded(key=str(key)):
                self.keys[key] = event.seq
            case TurnProgressRecord(state="claimed", epoch=epoch):
                self.epoch = max(self.epoch, epoch)
                self.active = event.at
            case Fork(parent=parent):
                self.parent = parent or None
            case _:
                pass


class MemoryStore:
    """A `Store` in memory. Its sessions are lost when the process ends.

    No method waits, so each one is done in one step.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._turns = TurnQueue()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        refuse_pickling("MemoryStore")

    async def __aenter__(self) -> Self:
        """Return the store. It is closed at the end of the block."""
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        """Add events to a log, all or none; see `Store.append`."""
        if not events:
            return
        lines: list[str] = []
        for event in events:
            lines.append(dump_event_line(event))
            if len(lines) % MAX_EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        log = self._logs.get(session, _Log())
        if epoch is not None and epoch < log.epoch:
            raise StaleOwner(session, epoch, log.epoch)
        _check_appendable(session, log, events)
        self._logs[session] = log
        log.active = log.active if log.lines else events[-1].at
        for event, line in zip(events, lines, strict=True):
            log.add(event, line)

    async def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        """Iterate over events of a log; see `Store.events`."""
        log = self._require_log(session)
        for first, last in spans:
            for line in log.lines[max(first, 1) - 1 : last]:
                yield load_event_line(line)

    async def position(self, session: str) -> int:
        """Return the last position of a log; 0 if there is no such session."""
        return len(self._logs[session].lines) if session in self._logs else 0

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        """Return the newest snapshot; see `Store.snapshot`."""
        snapshots = self._logs.get(session, _Log()).snapshots
        seq = max((seq for seq in snapshots if upto is None or seq <= upto), default=None)
        return snapshots[seq] if seq is not None else None

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; see `Store.checkpoint`."""
        self._require_log(session).snapshots[snapshot.seq] = snapshot

    async def find_key(self, session: str, key: str) -> int | None:
        """Return the position of the message with this idempotency key; None if there is none."""
        return self._logs.get(session, _Log()).keys.get(key)

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        """Return the positions of the messages that match a query best, best first."""
        parsed_query = Query.parse(query)
        events = map(load_event_line, self._logs.get(session, _Log()).lines)
        return rank_scored_positions(
            ((score_text(parsed_query, get_searchable_text(e)), e.seq) for e in events),
            limit,
        )

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        """Append and replace events, all or none; see `Store.rewrite`."""
        log = self._require_log(session)
        _check_appendable(session, log, events)
        new = _Log(snapshots=log.snapshots, active=log.active)
        for seq, line in enumerate(log.lines, 1):
            event = change(load_event_line(line))
            if event.seq != seq:
                raise ValueError(
                    f"event {seq} was changed into one at {event.seq}; it must keep its position"
                )
            new.add(event, dump_event_line(event))
        for event in events:
            new.add(event, dump_event_line(event))
        self._logs[session] = new

    async def delete(self, session: str) -> None:
        """Remove a session and everything that was made from it."""
        self._require_log(session)
        del self._logs[session]

    async def forks(self, session: str) -> list[str]:
        """Return the ids of the sessions that were forked from a session."""
        if session not in self._logs:
            return []
        return sorted(name for name, log in self._logs.items() if log.parent == session)

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionListEntry]:
        """Return sessions in the order of their ids; see `Store.sessions`."""
        names = sorted(name for name in self._logs if name > after)[:limit]
        return [_describe_session(name, self._logs[name]) for name in names]

    async def recent_sessions(
        self, folder: str, *, before: tuple[float, str] = NEWER_THAN_ALL, limit: int = 100
    ) -> list[SessionListEntry]:
        """Return the sessions of a folder, the last active ones first."""
        entries = [
            _describe_session(name, log)
            for name, log in self._logs.items()
            if name.startswith(folder) and "/" not in name.removeprefix(folder)
        ]
        entries.sort(key=lambda one: (one.active, one.session), reverse=True)
        return [one for one in entries if (one.active, one.session) < before][:limit]

    async def sessions_about(self, scope: str, subjects: Collection[str]) -> list[str]:
        """Return the sessions that may have one of these subjects."""
        return sorted(
            name
            for name, log in self._logs.items()
            if name.startswith(scope)
            and any(find_subject(load_event_line(line)) in subjects for line in log.lines)
        )

    def hold_turn(self, session: str, *, wait: float) -> AbstractAsyncContextManager[None]:
        """Hold the turn of a session, see `Store.hold_turn`."""
        return self._turns.hold(session, wait=wait)

    async def release(self, session: str) -> None:
        """Do nothing, because nothing is locked."""

    async def close(self) -> None:
        """Do nothing. The sessions stay, so that a test can open them again."""

    def _require_log(self, session: str) -> _Log:
        if session not in self._logs:
            raise SessionNotFound(session)
        return self._logs[session]


def _check_appendable(session: str, log: _Log, events: Sequence[Event]) -> None:
    """Raise if events may not be appended."""
    position = len(log.lines)
    if events and events[0].seq != position + 1:
        raise PositionTaken(session, events[0].seq, position)
    keys = dict(log.keys)
    for seq, event in enumerate(events, position + 1):
        if event.seq != seq:
            raise ValueError(
                f"event {event.seq} of a batch is out of order: event {seq} is expected here"
            )
        if isinstance(event.body, MessageAdded) and event.body.key is not None:
            if event.body.key in keys:
                raise DuplicateIdempotencyKey(session, event.body.key, keys[event.body.key])
            keys[event.body.key] = seq


def _describe_session(name: str, log: _Log) -> SessionListEntry:
    events = [load_event_line(line) for line in log.lines]
    return SessionListEntry(
        session=name,
        position=len(events),
        messages=sum(1 for event in events if isinstance(event.body, MessageAdded)),
        updated=events[-1].at,
        active=log.active,
        parent=log.parent,
    )
