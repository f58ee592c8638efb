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

from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.simulator import ProviderSimulator

if TYPE_CHECKING:
    import uvicorn


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSimulator:
    """A simulator that listens in a thread."""

    url: str
    """Where: `http://127.0.0.1:PORT`. What Anthropic's SDK takes as `base_url`."""
    simulator: ProviderSimulator
    """The simulator itself: its script, records, cache, clock and options."""

    @property
    def openai_url(self) -> str:
        """What OpenAI's SDK takes as `base_url`."""
        return f"{self.url}/v1"


@contextmanager
def serve_simulated_provider(
    simulator: ProviderSimulator | None = None, *, port: int = 0, **options: Any
) -> Generator[ServedSimulator]:
    """Serve a simulator from a thread for as long as the block lasts.

    Options are those of `ProviderSimulatorOptions`; a port of 0 takes a free one.
    """
    made = simulator or ProviderSimulator(ProviderSimulatorOptions(**options))
    listener = open_local_socket(port)
    server = build_simulator_server(made)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    # It listens already: who connects before the thread runs waits in line.
    thread.start()
    try:
        yield ServedSimulator(url=build_socket_url(listener), simulator=made)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()


def open_local_socket(port: int) -> socket.socket:
    """A listening socket on this machine."""
    # With the protocol named, asyncio sends small writes at once; else each waits for 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1_024)
    return listener


def build_socket_url(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def build_simulator_server(simulator: ProviderSimulator) -> uvicorn.Server:
    """A server that logs its own faults only and does not wait for clients that hang on."""
    # Here, so that whoever lacks the extra gets as far as being told.
    import uvicorn

    from trimtab.testing.server.http_app import build_provider_app

    logging.getLogger("uvicorn.error").addFilter(_is_unexpected_log)
    config = uvicorn.Config(
        build_provider_app(simulator),
        access_log=False,
        log_config=None,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def _is_unexpected_log(record: logging.LogRecord) -> bool:
    """A reply that ends without an end was meant to."""
    return "without completing response" not in record.getMessage()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSimulator:
    """A simulator in another process, controlled over HTTP."""

    url: str
    """Where it listens."""
    pid: int = 0
    """Its process; 0 where somebody else has started it."""

    @property
    def openai_url(self) -> str:
        """What OpenAI's SDK takes as `base_url`."""
        return f"{self.url}/v1"

    def set_replies(self, replies: Sequence[Any] = (), **script_options: Any) -> None:
        """Replace what is to come; see `SimulatorScript.set`."""
        self.call_control("POST", "script", {"replies": list(replies), **script_options})

    def advance_clock(self, seconds: float) -> None:
        """Let time pass."""
        self.call_control("POST", "clock", {"advance": seconds})

    def configure(self, **changes: Any) -> None:
        """Change options."""
        self.call_control("POST", "options", changes)

    def stats(self) -> dict[str, int]:
        """How many requests came, and what became of them."""
        return self.call_control("GET", "")["stats"]

    def list_requests(self, after_number: int = 0) -> list[dict[str, Any]]:
        """What was received; `RecordedRequest.to_json` says how."""
        return self.call_control("GET", f"requests?since={after_number}")

    def reset(self) -> None:
        """Forget requests, counts, scripts and caches."""
        self.call_control("POST", "reset", {})

    def call_control(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
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
def spawn_simulated_provider(*, port: int = 0, **options: Any) -> Generator[RemoteSimulator]:
    """Serve a simulator from a process of its own for as long as the block lasts."""
    command = [sys.executable, "-m", "trimtab.testing.server", "--port", str(port)]
    known = {field.name for field in fields(ProviderSimulatorOptions)}
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
            yield RemoteSimulator(url=line, pid=process.pid)
        finally:
            process.kill()
