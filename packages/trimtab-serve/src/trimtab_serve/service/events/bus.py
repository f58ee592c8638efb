"""Live events of sessions for subscribers.

A subscriber may miss an event. The log has everything, and a subscriber that missed something reads
it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from trimtab.session.events import TurnEvent

MAX_QUEUED_EVENTS = 256
"""Maximum number of events that wait for a slow subscriber. After that it gets `EventsMissed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsMissed:
    """An event was missed. Read the log."""

    type: ClassVar = "events.missed"


ReceivedEvent = TurnEvent | EventsMissed


class EventBus(Protocol):
    """Delivers events by session."""

    def publish(self, session: str, event: TurnEvent) -> None:
        """Send an event to all subscribers. It never waits."""
        ...

    def subscribe(self, session: str) -> AbstractContextManager[asyncio.Queue[ReceivedEvent]]:
        """Receive the events of a session during a `with` block."""
        ...

    def request_stop(self, session: str) -> None:
        """Stop a turn that runs in another process."""
        ...

    def request_pause(self, session: str) -> None:
        """Let a turn that runs in another process end after its current step."""
        ...


class LocalEventBus:
    """Delivers events within one process."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Queue[ReceivedEvent]]] = {}

    def publish(self, session: str, event: TurnEvent) -> None:
        for queue in self._listeners.get(session, ()):
            if queue.qsize() >= MAX_QUEUED_EVENTS:
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(EventsMissed())
            queue.put_nowait(event)

    def request_stop(self, session: str) -> None:
        """Do nothing, because there is no other process."""

    def request_pause(self, session: str) -> None:
        """Do nothing, because there is no other process."""

    @contextmanager
    def subscribe(self, session: str) -> Generator[asyncio.Queue[ReceivedEvent]]:
        queue: asyncio.Queue[ReceivedEvent] = asyncio.Queue()
        self._listeners.setdefault(session, set()).add(queue)
        try:
            yield queue
        finally:
            listeners = self._listeners[session]
            listeners.discard(queue)
            if not listeners:
                del self._listeners[session]
