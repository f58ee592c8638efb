"""The protocol of a store.

A store keeps logs: events in order, without gaps, as the bytes that `dump_event_line` wrote. Events
that `append` has acknowledged survive a crash. Everything else (snapshots, keys, the word index)
can be built again from the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trimtab.engine.log.event import Event
from trimtab.engine.window.checkpoint import Snapshot


class PoolUsage(NamedTuple):
    """The current state of a connection pool."""

    in_use: int
    """Connections in use."""
    max_size: int
    """Maximum number of connections."""
    waiting: int
    """Tasks that wait for a connection."""


PositionSpan = tuple[int, int | None]
"""First and last position, both included; None for everything that follows."""

WHOLE_LOG: tuple[PositionSpan, ...] = ((1, None),)

NEWER_THAN_ALL = (float("inf"), "")
"""The time and id before which every session was active."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListEntry:
    """One session in a list of sessions."""

    session: str
    """The session id."""
    position: int
    """Number of events in its log."""
    messages: int
    """Number of messages ever added, including undone ones."""
    updated: float
    """Time of its last event, in seconds since the epoch."""
    active: float
    """Its place in a list by recency, in seconds since the epoch: with files the time of the last
    write, otherwise the time at which its newest turn was claimed or the session began. A turn that
    follows another one within ten seconds may not change it."""
    parent: str | None = None
    """The session that it was forked from."""


class Store(Protocol):
    """Logs by session id. Every method may raise `StoreUnavailable` and the errors that it
    names."""

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        """Add events to a log, all or none. When it returns, they are durable.

        Position 1 begins a session. If several errors apply, the first of this list is raised.

        Args:
            session: The session id.
            events: Events with consecutive positions after the end of the log.
            epoch: The epoch of the writer's turn; None for a writer without a turn.

        Raises:
            StaleOwner: The `epoch` is older than that of the newest claimed turn.
            PositionTaken: Another writer has appended events. Read them and decide again.
            DuplicateIdempotencyKey: The session already has a message with this key.
            ValueError: The positions of the events have a gap.
        """
        ...

    def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        """Iterate over the events at these positions.

        Args:
            session: The session id.
            spans: Ascending spans of positions that do not overlap.

        Raises:
            SessionNotFound: There is no such session.
        """
        ...

    async def position(self, session: str) -> int:
        """Return the last position of the log; 0 for a session that does not exist."""
        ...

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        """Return the newest snapshot, or the newest one at or before the position `upto`.

        Raises:
            NewerSnapshotError: A newer version of trimtab wrote the snapshot.
        """
        ...

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, atomically. Earlier ones stay, except one at the same position.

        A store also indexes new messages at this moment.

        Raises:
            SessionNotFound: There is no such session.
        """
        ...

    async def find_key(self, session: str, key: str) -> int | None:
        """Return the position of the message with this idempotency key; None if there is none."""
        ...

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        """Return the positions of the messages that match a query best, best first."""
        ...

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        """Append events and replace existing events by changed ones, all or none.

        Content that `change` removes is left nowhere: not in blobs, indexes or rows made from
        events. Snapshots contain only positions and totals and may stay. It raises the same errors
        as `append`.

        Args:
            session: The session id.
            events: Events to append.
            change: Called with each event of the log in order, perhaps in another thread. It
                returns the event to store at the same position.
        """
        ...

    async def delete(self, session: str) -> None:
        """Remove a session and everything that was made from it.

        Raises:
            SessionNotFound: There is no such session.
        """
        ...

    async def forks(self, session: str) -> list[str]:
        """Return the ids of the sessions that were forked from a session."""
        ...

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionListEntry]:
        """Return sessions in the order of their ids, starting after the id `after`."""
        ...

    async def recent_sessions(
        self, folder: str, *, before: tuple[float, str] = NEWER_THAN_ALL, limit: int = 100
    ) -> list[SessionListEntry]:
        """Return the sessions of a folder, the last active ones first.

        Args:
            folder: The ids up to and including their last slash.
            before: `active` and `session` of the last entry of the previous page.
            limit: Maximum number of sessions.
        """
        ...

    async def sessions_about(self, scope: str, subjects: Collection[str]) -> list[str]:
        """Return the ids of all sessions that may have one of these subjects, in order.

        The subjects of a session are the senders of its messages and, if it is a fork, the sessions
        from which it was copied (`stores.subjects`). The result may contain other sessions. With
        files it contains those with damaged lines.

        Args:
            scope: The ids up to and including their first slash.
            subjects: Users, and names of sessions.
        """
        ...

    def hold_turn(self, session: str, *, wait: float) -> AbstractAsyncContextManager[None]:
        """Hold the turn of a session for an `async with` block.

        Meanwhile every other request for it waits, in this process and in all others. A process
        that ends no longer holds it, however it ends. Events may be appended without it.

        Args:
            session: The session id.
            wait: Seconds to wait for a request that holds it.

        Raises:
            SessionBusy: Another request held it all the time.
        """
        ...

    async def release(self, session: str) -> None:
        """Release a session, so that another process may write to it."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...
