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

from trimtab.session.happenings import Happening

ROOM = 256
"""Happenings that wait for a slow listener; beyond that it is told that it missed some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Something was not heard: read the log."""


Heard = Happening | Missed


class Live(Protocol):
    """Happenings, by session."""

    def tell(self, session: str, happening: Happening) -> None:
        """Let all who watch hear it; never waits."""
        ...

    def watch(self, session: str) -> AbstractContextManager[asyncio.Queue[Heard]]:
        """Hear what happens, for the length of a `with`."""
        ...

    def ask_to_stop(self, session: str) -> None:
        """Let a turn that runs in another process end after its step."""
        ...


class LocalLive:
    """Within one process."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Queue[Heard]]] = {}

    def tell(self, session: str, happening: Happening) -> None:
        for queue in self._listeners.get(session, ()):
            if queue.qsize() >= ROOM:
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(Missed())
            queue.put_nowait(happening)

    def ask_to_stop(self, session: str) -> None:
        """There is no other process."""

    @contextmanager
    def watch(self, session: str) -> Generator[asyncio.Queue[Heard]]:
        queue: asyncio.Queue[Heard] = asyncio.Queue()
        self._listeners.setdefault(session, set()).add(queue)
        try:
            yield queue
        finally:
            listeners = self._listeners[session]
            listeners.discard(queue)
            if not listeners:
                del self._listeners[session]
