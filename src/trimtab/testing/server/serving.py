"""The simulator on a real socket: in a thread of this process, or in a process of its own."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trimtab.testing.server.options import Options
from trimtab.testing.server.simulator import Simulator

if TYPE_CHECKING:
    import uvicorn


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A simulator that listens in a thread."""

    url: str
    """Where: `http://127.0.0.1:PORT`. What Anthropic's SDK takes as `base_url`."""
    simulator: Simulator
    """The simulator itself: its script, records, cache, clock and options."""

    @property
    def openai_url(self) -> str:
        """What OpenAI's SDK takes as `base_url`."""
        return f"{self.url}/v1"


@contextmanager
def serve(
    simulator: Simulator | None = None, *, port: int = 0, **options: Any
) -> Generator[Served]:
    """Serve a simulator from a thread for as long as the block lasts.

    Options are those of `Options`; a port of 0 takes a free one.
    """
    made = simulator or Simulator(Options(**options))
    listener = listen(port)
    server = server_of(made)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    # It listens already: who connects before the thread runs waits in line.
    thread.start()
    try:
        yield Served(url=address(listener), simulator=made)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()


def listen(port: int) -> socket.socket:
    """A listening socket on this machine."""
    # With the protocol named, asyncio sends small writes at once; else each waits for 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1_024)
    return listener


def address(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def server_of(simulator: Simulator) -> uvicorn.Server:
    """A server that logs its own faults only and does not wait for clients that hang on."""
    # Here, so that whoever lacks the extra gets as far as being told.
    import uvicorn

    from trimtab.testing.server.app import app_of

    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        app_of(simulator),
        access_log=False,
        log_config=None,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def _is_news(record: logging.LogRecord) -> bool:
    """A reply that ends without an end was meant to."""
    return "without completing response" not in record.getMessage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A simulator in another process, controlled over HTTP."""

    url: str
    """Where it listens."""
    pid: int = 0
    """Its process; 0 where somebody else has started it."""

    @property
    def openai_url(self) -> str:
        """What OpenAI's SDK takes as `base_url`."""
        return f"{self.url}/v1"

    def script(self, replies: Sequence[Any] = (), **told: Any) -> None:
        """Replace what is to come; see `Script.set`."""
        self.call("POST", "script", {"replies": list(replies), **told})

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.call("POST", "clock", {"advance": seconds})

    def configure(self, **changes: Any) -> None:
        """Change options."""
        self.call("POST", "options", changes)

    def stats(self) -> dict[str, int]:
        """How many requests came, and what became of them."""
        return self.call("GET", "")["stats"]

    def requests(self, since: int = 0) -> list[dict[str, Any]]:
        """What was received; `Record.to_json` says how."""
        return self.call("GET", f"requests?since={since}")

    def reset(self) -> None:
        """Forget requests, counts, scripts and caches."""
        self.call("POST", "reset", {})

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request to a control endpoint."""
        place = urlsplit(self.url)
        connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"/_control/{path}".rstrip("/"), sent)
            response = connection.getresponse()
            told = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"the simulator refused {method} {path}: {told}")
        return told


@contextmanager
def serve_process(*, port: int = 0, **options: Any) -> Generator[Remote]:
    """Serve a simulator from a process of its own for as long as the block lasts."""
    command = [sys.executable, "-m", "trimtab.testing.server", "--port", str(port)]
    known = {field.name for field in fields(Options)}
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"no option {name}; known: {', '.join(sorted(known))}")
        if value is not None:
            command += ["--set", f"{name}={json.dumps(value)}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            line = process.stdout.readline().strip()
            if not line.startswith("http"):
                raise RuntimeError(f"the simulator did not start; it said {line!r}")
            yield Remote(url=line, pid=process.pid)
        finally:
            process.kill()
