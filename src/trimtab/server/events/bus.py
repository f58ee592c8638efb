"""Who watches a session hears what happens in it as it happens.

What is heard here is a courtesy: it may be missed. The truth is in the log, and whoever missed
something reads it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from trimtab.session.events import TurnEvent

MAX_QUEUED_EVENTS = 256
"""Happenings that wait for a slow listener; beyond that it is told that it missed some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsMissed:
    """Something was not heard: read the log."""


ReceivedEvent = TurnEvent | EventsMissed


class EventBus(Protocol):
    """Happenings, by session."""

    def publish(self, session: str, event: TurnEvent) -> None:
        """Let all who watch hear it; never waits."""
        ...

    def subscribe(self, session: str) -> AbstractContextManager[asyncio.Queue[ReceivedEvent]]:
        """Hear what happens, for the length of a `with`."""
        ...

    def request_stop(self, session: str) -> None:
        """Cut off a turn that runs in another process."""
        ...

    def request_pause(self, session: str) -> None:
        """Let a turn that runs in another process end after its step."""
        ...


class LocalEventBus:
    """Within one process."""

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
        """There is no other process."""

    def request_pause(self, session: str) -> None:
        """There is no other process."""

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
