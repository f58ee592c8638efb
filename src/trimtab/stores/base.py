"""What a store promises, whatever it is made of.

A store keeps logs: events in order, without gaps, as the bytes that `dump` made of them. What
`append` has acknowledged is there after a crash. All else (snapshots, keys, the index of words) can
be made again from the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trimtab.log.event import Event
from trimtab.window.checkpoint import Snapshot

PositionSpan = tuple[int, int | None]
"""First and last position, both included; None for all that follows."""

WHOLE_LOG: tuple[PositionSpan, ...] = ((1, None),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListEntry:
    """What a list of sessions says of one."""

    session: str
    """Its id."""
    position: int
    """Events in its log."""
    messages: int
    """Messages ever said in it; undone ones count."""
    updated: float
    """When its last event happened, in seconds since the epoch."""
    parent: str | None = None
    """The session that it was forked from."""


class Store(Protocol):
    """Logs by session id. Every method may raise `StoreUnavailable` and what it names itself."""

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        """Add events to a log, all or none; when it returns they are durable.

        An `epoch` older than the newest claimed turn's is refused with `StaleOwner`. The first must
        stand right behind the log's last, else `PositionTaken`: somebody else has written, and
        whoever decided from an older window decides again. A message's key that the session knows
        is refused with `DuplicateIdempotencyKey`. The first of these that holds is raised.
        Position 1 begins a session; a gap within the events is a `ValueError`.
        """
        ...

    def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        """The events at these positions; spans ascend and do not overlap. Raises
        `SessionNotFound`."""
        ...

    async def position(self, session: str) -> int:
        """The log's last position; 0 for a session that does not exist."""
        ...

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        """The newest snapshot, or the newest at or before a position. `NewerSnapshotError` if
        so."""
        ...

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, atomically; earlier ones stay, but for one at the same position.

        Also the moment to index what is new. Raises `SessionNotFound`.
        """
        ...

    async def find_key(self, session: str, key: str) -> int | None:
        """The position of the message that came with this idempotency key."""
        ...

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        """Positions of the messages that match best by `core.search`, best first."""
        ...

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        """Append events, and put changed ones in place of those they stand for, all or none.

        `change` sees what is in the log, in order, perhaps on another thread, and keeps positions.
        Nothing of what it takes out is left anywhere: not in blobs, indexes or rows made from
        events. Snapshots hold positions and totals and may stay. Refuses as `append` does.
        """
        ...

    async def delete(self, session: str) -> None:
        """Remove a session and all that was made from it. `SessionNotFound` if there is none."""
        ...

    async def forks(self, session: str) -> list[str]:
        """Sessions that were forked from it, by id."""
        ...

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionListEntry]:
        """Sessions in the order of their ids, from behind one of them."""
        ...

    async def release(self, session: str) -> None:
        """This process will not write to the session for now; another may."""
        ...

    async def close(self) -> None:
        """Give back whatever is held."""
        ...
