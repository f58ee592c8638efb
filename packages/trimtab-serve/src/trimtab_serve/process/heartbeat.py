"""Tell other processes that this one is alive.

A thread with its own connection sends the heartbeats. So a turn that keeps the event loop busy for
seconds does not look like a process that is gone, and is not taken over. The heartbeats stop only
when the loop has stood still for so long that the process must be restarted. Code that keeps the
interpreter lock stops this thread too, and looks like a process that is gone.

A process that was silent for too long cancels its jobs before its next heartbeat, because other
processes take them over. A request must not be sent twice at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic

from psycopg import Connection, Error, RawCursor
from psycopg.types.numeric import Int8

from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab_serve.process.loop_health import MAX_STALL_S
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPoolTimings:
    """Intervals and timeouts of the worker pool, in seconds."""

    heartbeat_s: float = 5.0
    """Between two heartbeats of a process, and between two checks of the others."""
    takeover_after_s: float = 20.0
    """Without a heartbeat before the jobs of a process are taken over.

    A process takes over only after its own heartbeats worked for this long. After a database
    outage, all processes look silent.
    """
    self_cancel_after_s: float = 15.0
    """Without a successful heartbeat before a process cancels its own turns.

    Another process will take them over, and no request must be sent twice at the same time.
    """
    max_stall_s: float = MAX_STALL_S
    """For which the event loop may stand still before the heartbeats stop.

    Then the liveness probe fails as well, and other processes take over.
    """
    poll_s: float = 1.0
    """Between two polls for jobs without a notification."""
    shutdown_grace_s: float = 30.0
    """For running turns to end, after the database is lost or the process is stopped."""
    restart_delay_s: float = 1.0
    """Before workers restart after the database was lost."""


CONNECT_TIMEOUT_S = 5
"""Seconds to wait for a connection to the database."""
THREAD_END_S = 2.0
"""Seconds to wait for the thread at the end. It may wait for a database that does not answer."""

log = logging.getLogger("trimtab.server")


class Heartbeat:
    """The heartbeat of the workers of this process."""

    def __init__(
        self,
        conninfo: str,
        timings: WorkerPoolTimings,
        *,
        list_worker_ids: Callable[[], Collection[int]],
        cancel_jobs: Callable[[bool], None],
    ) -> None:
        self.heard_since: float | None = None
        """Since when all heartbeats have succeeded. None if the last one failed."""
        self._conninfo = add_connection_name(conninfo, "heartbeat")
        self._timings = timings
        self._list_worker_ids = list_worker_ids
        self._cancel_jobs = cancel_jobs
        self._last_beat_at = self._loop_seen_at = monotonic()
        self._connection: Connection | None = None

    def heard_for_s(self) -> float:
        """Return the seconds for which all heartbeats have succeeded."""
        since = self.heard_since
        return 0.0 if since is None or self._is_silent() else monotonic() - since

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        self._last_beat_at = self._loop_seen_at = monotonic()
        self.heard_since = None
        loop = asyncio.get_running_loop()
        stop_event = Event()
        thread = Thread(
            target=self._beat_until, args=(stop_event, loop), name="trimtab-heartbeat", daemon=True
        )
        thread.start()
        try:
            while True:
                # The thread may hang in a heartbeat.
                if self._is_silent():
                    self._cancel_jobs(self._is_stalled(self._timings.self_cancel_after_s))
                self._loop_seen_at = monotonic()
                await asyncio.sleep(min(1.0, self._timings.heartbeat_s))
        finally:
            stop_event.set()
            await asyncio.to_thread(thread.join, THREAD_END_S)

    def _is_silent(self) -> bool:
        """Whether no heartbeat has succeeded for so long that other processes soon take over."""
        return monotonic() - self._last_beat_at > self._timings.self_cancel_after_s

    def _is_stalled(self, seconds: float) -> bool:
        """Whether the event loop has not run for this long."""
        return monotonic() - self._loop_seen_at > seconds

    def _beat_until(self, stop_event: Event, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not stop_event.wait(self._timings.heartbeat_s):
                if self._is_silent():
                    is_stalled = self._is_stalled(self._timings.self_cancel_after_s)
                    with suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(self._cancel_jobs, is_stalled)
                if not self._is_stalled(self._timings.max_stall_s):
                    self._beat()
                elif self.heard_since is not None:
                    self.heard_since = None
                    log.error(
                        "the event loop has not run for %g s; other processes take over its turns",
                        self._timings.max_stall_s,
                    )
        finally:
            self._disconnect()

    def _beat(self) -> None:
        # Taken before, because other processes count from the database's time.
        now = monotonic()
        try:
            connection = self._connection or self._connect()
            connection.execute(SERVER_QUERIES["beat"], [[*map(Int8, self._list_worker_ids())]])
        except (Error, OSError) as error:
            self.heard_since = None
            log.debug("heartbeat failed: %r", error)
            self._disconnect()
            return
        self._last_beat_at = now
        if self.heard_since is None:
            self.heard_since = now

    def _connect(self) -> Connection:
        self._connection = Connection.connect(
            self._conninfo,
            autocommit=True,
            cursor_factory=RawCursor,
            connect_timeout=CONNECT_TIMEOUT_S,
        )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
