"""Live session events for subscribers in any process, over PostgreSQL's LISTEN and NOTIFY.

Each process regularly announces which sessions have subscribers in it. The others send only events
of those sessions. They collect parts of a reply for a moment. For logged events they send only that
there are new ones. Subscribers in the same process get every event at once.

Events may be lost, as within one process. Then the subscriber gets a request to read the log.
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

from trimtab.session.events import TurnEvent
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab_serve.service.events.bus import EventsMissed, LocalEventBus, ReceivedEvent
from trimtab_serve.service.events.notify_payloads import (
    MISSED,
    JsonEvent,
    append_coalesced,
    build_event_payloads,
    build_session_list_payloads,
    decode_event,
    encode_turn_event,
)

NOTIFY_CHANNEL = "trimtab_live"
FLUSH_INTERVAL_S = 0.1
"""Seconds for which parts of a reply are collected."""
ANNOUNCE_INTERVAL_S = 5.0
"""Seconds between two announcements of subscribed sessions. One is valid three times as long."""
MAX_PENDING_EVENTS = 1_000
"""Maximum number of events of a session that wait to be sent.

Above that, only the fact that there are events is sent.
"""
MAX_PENDING_PAYLOADS = 10_000
"""Maximum number of notifications that wait. The oldest are dropped, and announcements are
repeated."""
RECONNECT_DELAY_S = 1.0
"""Seconds before the next attempt if the database is unavailable."""

log = logging.getLogger("trimtab.events")


class PostgresEventBus:
    """The `EventBus` for several processes. It works while `run` does."""

    def __init__(
        self,
        conninfo: str,
        *,
        flush_interval_s: float = FLUSH_INTERVAL_S,
        announce_interval_s: float = ANNOUNCE_INTERVAL_S,
    ) -> None:
        self.on_stop_requested: Callable[[str], object] = lambda _: None
        """Called with a session whose turn another process wants to stop."""
        self.on_pause_requested: Callable[[str], object] = lambda _: None
        """Called with a session whose turn another process wants to end after its current step."""
        self._conninfo = conninfo
        self._flush_interval_s = flush_interval_s
        self._announce_interval_s = announce_interval_s
        self._sender_id = uuid4().hex[:12]
        self._local = LocalEventBus()
        self._watched = Counter[str]()
        self._remote_watchers: dict[str, dict[str, float]] = {}
        self._pending_events: dict[str, list[JsonEvent]] = {}
        self._payloads: list[str] = []
        self._wake = asyncio.Event()

    def publish(self, session: str, event: TurnEvent) -> None:
        """Send an event to all subscribers. It never waits."""
        self._local.publish(session, event)
        if session not in self._remote_watchers or (event_json := encode_turn_event(event)) is None:
            return
        waiting = self._pending_events.setdefault(session, [])
        if len(waiting) >= MAX_PENDING_EVENTS:
            waiting[:] = [MISSED]
        append_coalesced(waiting, event_json)
        self._wake.set()

    @contextmanager
    def subscribe(self, session: str) -> Generator[asyncio.Queue[ReceivedEvent]]:
        """Receive the events of a session during a `with` block."""
        with self._local.subscribe(session) as queue:
            self._watched[session] += 1
            if self._watched[session] == 1:
                self._queue_payloads(
                    build_session_list_payloads(self._sender_id, "watch", [session])
                )
            try:
                yield queue
            finally:
                self._watched[session] -= 1
                if not self._watched[session]:
                    del self._watched[session]
                    self._queue_payloads(
                        build_session_list_payloads(self._sender_id, "left", [session])
                    )

    def request_stop(self, session: str) -> None:
        self._queue_payloads(build_session_list_payloads(self._sender_id, "stop", [session]))

    def request_pause(self, session: str) -> None:
        self._queue_payloads(build_session_list_payloads(self._sender_id, "pause", [session]))

    async def run(self) -> None:
        """Listen and send until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._run_with_reconnect(self._listen), name="listening to other processes"
            )
            group.create_task(
                self._run_with_reconnect(self._send_loop), name="sending to other processes"
            )
            group.create_task(self._announce_loop(), name="announcing subscriptions")

    async def _run_with_reconnect(self, work: Callable[[AsyncConnection], Any]) -> None:
        """Run with a connection, and with a new one when it is lost."""
        while True:
            with contextlib.suppress(Error, OSError):
                async with await AsyncConnection.connect(
                    add_connection_name(self._conninfo, "events"), autocommit=True
                ) as connection:
                    await work(connection)
            log.debug("notifications are waiting for the database")
            await asyncio.sleep(RECONNECT_DELAY_S)

    async def _listen(self, connection: AsyncConnection) -> None:
        await connection.execute(f"LISTEN {NOTIFY_CHANNEL}".encode())
        self._queue_payloads(build_session_list_payloads(self._sender_id, "who", [""]))
        self._queue_payloads(
            build_session_list_payloads(self._sender_id, "watch", [*self._watched])
        )
        for session in self._watched:
            self._publish_locally(session, EventsMissed())  # events in between were lost
        async for note in connection.notifies():
            try:
                self._handle_payload(json.loads(note.payload))
            except (ValueError, TypeError, KeyError) as error:
                log.warning("invalid notification from another process: %r", error)

    def _handle_payload(self, payload: dict[str, Any]) -> None:
        sender = str(payload["from"])
        if sender == self._sender_id:
            return
        for event_json in payload.get("events", ()):
            event = decode_event(event_json)
            if event is not None and payload["session"] in self._watched:
                self._publish_locally(payload["session"], event)
        for session in payload.get("watch", ()):
            self._remote_watchers.setdefault(session, {})[sender] = (
                time.monotonic() + 3 * self._announce_interval_s
            )
        for session in payload.get("left", ()):
            self._remove_watcher(session, sender)
        for session in payload.get("stop", ()):
            self.on_stop_requested(session)
        for session in payload.get("pause", ()):
            self.on_pause_requested(session)
        if "who" in payload:
            self._queue_payloads(
                build_session_list_payloads(self._sender_id, "watch", [*self._watched])
            )

    def _publish_locally(self, session: str, event: ReceivedEvent) -> None:
        # The queue takes both types. Only publishers must not send `EventsMissed`.
        self._local.publish(session, cast("TurnEvent", event))

    def _remove_watcher(self, session: str, sender: str) -> None:
        watchers = self._remote_watchers.get(session, {})
        watchers.pop(sender, None)
        if not watchers:
            self._remote_watchers.pop(session, None)

    async def _announce_loop(self) -> None:
        while True:
            await asyncio.sleep(self._announce_interval_s)
            self._queue_payloads(
                build_session_list_payloads(self._sender_id, "watch", [*self._watched])
            )
            now = time.monotonic()
            for session, watchers in [*self._remote_watchers.items()]:
                for sender in [sender for sender, until in watchers.items() if until < now]:
                    self._remove_watcher(session, sender)

    def _queue_payloads(self, payloads: Iterable[str]) -> None:
        self._payloads.extend(payloads)
        del self._payloads[:-MAX_PENDING_PAYLOADS]
        self._wake.set()

    async def _send_loop(self, connection: AsyncConnection) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            notes = self._payloads
            self._payloads = []
            pending_events = self._pending_events
            self._pending_events = {}
            for session, waiting in pending_events.items():
                notes.extend(build_event_payloads(self._sender_id, session, waiting))
            if notes:
                # All in one statement, and without waiting for the disk, because nothing is
                # written.
                await connection.execute(
                    "SELECT pg_notify(%s, note) FROM unnest(%s::text[]) AS note",
                    [NOTIFY_CHANNEL, notes],
                )
                await asyncio.sleep(self._flush_interval_s)
