"""Who watches a session hears what happens in it, whichever process its turn runs in.

Over PostgreSQL's LISTEN and NOTIFY. A process says which sessions are watched in it, again and
again, and others send only what happens in those: pieces of a reply are gathered for a moment, and
of what is in the log only that there is more. Own watchers hear at once and everything.

All of it may be lost, as it may within one process: then the watcher is told to read the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast
from uuid import uuid4

from psycopg import AsyncConnection, Error

from trimtab.session.happenings import Happening
from trimtab.worker.live import Heard, LocalLive, Missed
from trimtab.worker.notes import Told, heard_of, join, list_of, notes_of, told_of

CHANNEL = "trimtab_live"
EVERY = 0.1
"""Seconds for which pieces are gathered."""
AGAIN = 5.0
"""Seconds between two announcements of what is watched; it holds for three times as long."""
MOST = 1_000
"""Happenings of a session that wait to be sent; beyond that only that there are some."""
NOTES = 10_000
"""Notes that wait to be sent; beyond that the oldest go: watchers are announced again."""
SOON = 1.0
"""Seconds before another try where the database is away."""

log = logging.getLogger("trimtab.live")


class PostgresLive:
    """The `Live` for many processes; it works while `run` does."""

    def __init__(self, conninfo: str, *, every: float = EVERY, again: float = AGAIN) -> None:
        self.stopped: Callable[[str], object] = lambda _: None
        """Called with the session whose turn another process wants to end."""
        self._conninfo = conninfo
        self._every = every
        self._again = again
        self._me = uuid4().hex[:12]
        self._local = LocalLive()
        self._watched = Counter[str]()
        self._far: dict[str, dict[str, float]] = {}
        self._told: dict[str, list[Told]] = {}
        self._notes: list[str] = []
        self._more = asyncio.Event()

    def tell(self, session: str, happening: Happening) -> None:
        """Let all who watch hear it; never waits."""
        self._local.tell(session, happening)
        if session not in self._far or (told := told_of(happening)) is None:
            return
        waiting = self._told.setdefault(session, [])
        if len(waiting) >= MOST:
            waiting[:] = [["moved"]]
        join(waiting, told)
        self._more.set()

    @contextmanager
    def watch(self, session: str) -> Generator[asyncio.Queue[Heard]]:
        """Hear what happens, for the length of a `with`."""
        with self._local.watch(session) as queue:
            self._watched[session] += 1
            if self._watched[session] == 1:
                self._say(list_of(self._me, "watch", [session]))
            try:
                yield queue
            finally:
                self._watched[session] -= 1
                if not self._watched[session]:
                    del self._watched[session]
                    self._say(list_of(self._me, "left", [session]))

    def ask_to_stop(self, session: str) -> None:
        self._say(list_of(self._me, "stop", [session]))

    async def run(self) -> None:
        """Listen and send until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lasting(self._listen), name="listening for other processes")
            group.create_task(self._lasting(self._send), name="telling other processes")
            group.create_task(self._announce(), name="announcing what is watched")

    async def _lasting(self, work: Callable[[AsyncConnection], Any]) -> None:
        """Work with a connection, and with another one when it is lost."""
        while True:
            with contextlib.suppress(Error, OSError):
                async with await AsyncConnection.connect(
                    self._conninfo, autocommit=True
                ) as connection:
                    await work(connection)
            log.debug("live notes wait for the database")
            await asyncio.sleep(SOON)

    async def _listen(self, connection: AsyncConnection) -> None:
        await connection.execute(f"LISTEN {CHANNEL}".encode())
        self._say(list_of(self._me, "who", [""]))
        self._say(list_of(self._me, "watch", [*self._watched]))
        for session in self._watched:
            self._hear(session, Missed())  # what was said in between is gone
        async for note in connection.notifies():
            try:
                self._take(json.loads(note.payload))
            except (ValueError, TypeError, KeyError) as error:
                log.warning("a note of another process cannot be read: %r", error)

    def _take(self, note: dict[str, Any]) -> None:
        sender = str(note["from"])
        if sender == self._me:
            return
        for told in note.get("told", ()):
            heard = heard_of(told)
            if heard is not None and note["session"] in self._watched:
                self._hear(note["session"], heard)
        for session in note.get("watch", ()):
            self._far.setdefault(session, {})[sender] = time.monotonic() + 3 * self._again
        for session in note.get("left", ()):
            self._leave(session, sender)
        for session in note.get("stop", ()):
            self.stopped(session)
        if "who" in note:
            self._say(list_of(self._me, "watch", [*self._watched]))

    def _hear(self, session: str, heard: Heard) -> None:
        # The queue takes both; only tellers must not say that something was missed.
        self._local.tell(session, cast("Happening", heard))

    def _leave(self, session: str, sender: str) -> None:
        watchers = self._far.get(session, {})
        watchers.pop(sender, None)
        if not watchers:
            self._far.pop(session, None)

    async def _announce(self) -> None:
        while True:
            await asyncio.sleep(self._again)
            self._say(list_of(self._me, "watch", [*self._watched]))
            now = time.monotonic()
            for session, watchers in [*self._far.items()]:
                for sender in [sender for sender, until in watchers.items() if until < now]:
                    self._leave(session, sender)

    def _say(self, notes: Iterable[str]) -> None:
        self._notes.extend(notes)
        del self._notes[:-NOTES]
        self._more.set()

    async def _send(self, connection: AsyncConnection) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            notes, self._notes = self._notes, []
            told, self._told = self._told, {}
            for session, waiting in told.items():
                notes.extend(notes_of(self._me, session, waiting))
            if notes:
                # All in one, and without a wait for the disk: nothing is written.
                await connection.execute(
                    "SELECT pg_notify(%s, note) FROM unnest(%s::text[]) AS note", [CHANNEL, notes]
                )
                await asyncio.sleep(self._every)
