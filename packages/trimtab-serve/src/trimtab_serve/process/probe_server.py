"""Answer probes and scrapers from a thread of its own, which does not wait for the event loop.

The thread has a second event loop. It answers `GET /healthz` and `GET /metrics` on the port of
`--metrics-port`. Without a port, it only watches the first loop. It also reports to systemd's
watchdog.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from trimtab_serve.channels.http.problems import PROBLEM_MEDIA_TYPE, HttpProblem
from trimtab_serve.channels.http.problems import build_unavailable_problem as unavailable
from trimtab_serve.client.types import encode_json_bytes
from trimtab_serve.process.loop_health import LoopHealth

WATCH_INTERVAL_S = 1.0
"""Seconds between two looks at the loop."""
PROBE_TIMEOUT_S = 5.0
"""Seconds in which a request must arrive and its response be read."""
MAX_PROBE_CONNECTIONS = 64
"""Maximum number of connections. The oldest is closed if there are more."""
MAX_REQUEST_BYTES = 8_192
THREAD_END_S = 2.0
"""Seconds to wait for the thread at the end."""

RenderMetrics = Callable[[], tuple[bytes, str]]
"""Returns the body of `/metrics` and its media type."""

log = logging.getLogger("trimtab.serve")


class ProbeServer:
    """The thread. It ends with `close`, or with the process."""

    def __init__(
        self,
        loop_health: LoopHealth,
        *,
        listener: socket.socket | None = None,
        render_metrics: RenderMetrics | None = None,
    ) -> None:
        self._health = loop_health
        self._listener = listener
        self._render_metrics = render_metrics
        self._connections: dict[asyncio.StreamWriter, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._thread = Thread(target=self._run, name="trimtab-probes", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        if self._loop is None:
            return
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(THREAD_END_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop or asyncio.new_event_loop()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = None
        if self._listener is not None:
            server = await asyncio.start_server(
                self._answer, sock=self._listener, limit=MAX_REQUEST_BYTES
            )
        while not self._stopped.is_set():
            self._health.log_stall()
            if self._health.is_alive:
                notify_systemd(b"WATCHDOG=1")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), WATCH_INTERVAL_S)
        if server is not None:
            server.close()
            for writer in self._connections:
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > MAX_PROBE_CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                writer.write_eof()
                await writer.drain()
                # Closing before the client does would discard what it has not read yet.
                await reader.read(1)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    def _respond(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return encode_problem(
                HttpProblem(
                    "method-not-allowed", "only GET is allowed here", headers={"Allow": "GET"}
                )
            )
        if path == b"/healthz":
            if self._health.is_alive:
                return encode_response(200, encode_json_bytes({"status": "ok"}), "application/json")
            return encode_problem(
                unavailable(f"the event loop has not run for {self._health.stalled_s:.0f} s")
            )
        if path == b"/metrics" and self._render_metrics is not None:
            return encode_response(200, *self._render_metrics())
        return encode_problem(HttpProblem("not-found", "this port has /healthz and /metrics"))


def notify_systemd(state: bytes) -> None:
    """Send a state to systemd, if it started this process and wants to hear it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(state, path.replace("@", "\0", 1) if path.startswith("@") else path)


def encode_problem(problem: HttpProblem) -> bytes:
    """Return a problem as a whole HTTP response."""
    return encode_response(
        problem.kind.status,
        encode_json_bytes(problem.to_document()),
        PROBLEM_MEDIA_TYPE,
        **problem.headers,
    )


def encode_response(status: int, body: bytes, media_type: str, **headers: str) -> bytes:
    """Return a whole HTTP response, after which the connection is closed."""
    headers_by_name = {
        "Content-Type": media_type,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        **headers,
    }
    lines = [
        f"HTTP/1.1 {status} ",
        *(f"{name}: {value}" for name, value in headers_by_name.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
