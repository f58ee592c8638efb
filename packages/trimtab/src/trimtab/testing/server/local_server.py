"""Serve the simulator on a real socket: in a thread of this process, or in a separate process."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trimtab.errors import MissingPackageError
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.simulator import ProviderSimulator

if TYPE_CHECKING:
    import uvicorn


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSimulator:
    """A simulator that listens on a local port, in a thread."""

    url: str
    """The address, `http://127.0.0.1:PORT`. It is the `base_url` for Anthropic's SDK."""
    simulator: ProviderSimulator
    """The simulator itself: its script, records, cache, clock and options."""

    @property
    def openai_url(self) -> str:
        """The `base_url` for OpenAI's SDK."""
        return f"{self.url}/v1"


@contextmanager
def serve_simulated_provider(
    simulator: ProviderSimulator | None = None, *, port: int = 0, **options: Any
) -> Generator[ServedSimulator]:
    """Serve a simulated provider from a thread while the `with` block lasts.

    Args:
        simulator: The simulator to serve. By default a new one.
        port: The port. 0 takes a free one.
        **options: Fields of `ProviderSimulatorOptions` for a new simulator.

    Yields:
        The served simulator, with its address.
    """
    provider_simulator = simulator or ProviderSimulator(ProviderSimulatorOptions(**options))
    with serve_in_thread(build_simulator_server(provider_simulator), port) as url:
        yield ServedSimulator(url=url, simulator=provider_simulator)


@contextmanager
def serve_in_thread(server: uvicorn.Server, port: int) -> Generator[str]:
    """Run a server in a thread; yield its URL."""
    listener = open_local_socket(port)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    # It listens already: a client that connects before the thread runs waits.
    thread.start()
    try:
        yield build_socket_url(listener)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()


def open_local_socket(port: int) -> socket.socket:
    """Return a listening socket on this machine."""
    # With the protocol named, asyncio sends small writes at once; else each waits for 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1_024)
    return listener


def build_socket_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def build_simulator_server(simulator: ProviderSimulator) -> uvicorn.Server:
    """Return a server for a simulated provider."""

    def build_app() -> Any:
        from trimtab.testing.server.http_app import build_provider_app

        return build_provider_app(simulator)

    return build_quiet_server(build_app)


def build_quiet_server(build_app: Callable[[], Any], **options: Any) -> uvicorn.Server:
    """Return a server that logs only its own faults and does not wait for clients at the end."""
    try:
        import uvicorn

        app = build_app()
    except ModuleNotFoundError as error:
        cause = f"the simulated servers need {error.name}, which is not installed"
        raise MissingPackageError(cause, extra="testing", name=error.name) from error
    logging.getLogger("uvicorn.error").addFilter(_is_unexpected_log)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=1,
        **options,
    )
    return uvicorn.Server(config)


def _is_unexpected_log(record: logging.LogRecord) -> bool:
    """Ignore log records about incomplete replies, which are intended."""
    return "without completing response" not in record.getMessage()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSimulator:
    """A simulator in another process, controlled over HTTP."""

    url: str
    """The address."""
    pid: int = 0
    """The id of its process. 0 if another program has started it."""

    @property
    def openai_url(self) -> str:
        """The `base_url` for OpenAI's SDK."""
        return f"{self.url}/v1"

    def set_replies(self, replies: Sequence[Any] = (), **script_options: Any) -> None:
        """Replace the script. See `SimulatorScript.set_replies`."""
        self.call_control("POST", "script", {"replies": list(replies), **script_options})

    def advance_clock(self, seconds: float) -> None:
        """Move the simulated time forward."""
        self.call_control("POST", "clock", {"advance": seconds})

    def configure(self, **changes: Any) -> None:
        """Change options."""
        self.call_control("POST", "options", changes)

    def stats(self) -> dict[str, int]:
        """Return the number of requests, and their outcomes."""
        return self.call_control("GET", "")["stats"]

    def list_requests(self, after_number: int = 0) -> list[dict[str, Any]]:
        """Return the recorded requests in the form of `RecordedRequest.to_json`."""
        return self.call_control("GET", f"requests?since={after_number}")

    def reset(self) -> None:
        """Forget requests, counts, scripts and caches."""
        self.call_control("POST", "reset", {})

    def call_control(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one request to a control endpoint."""
        place = urlsplit(self.url)
        connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
        try:
            request_body = None if body is None else json.dumps(body)
            connection.request(method, f"/_control/{path}".rstrip("/"), request_body)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"the simulator refused {method} {path}: {answer}")
        return answer


@contextmanager
def spawn_simulated_provider(*, port: int = 0, **options: Any) -> Generator[RemoteSimulator]:
    """Serve a simulator from a separate process while the `with` block lasts."""
    command = [sys.executable, "-m", "trimtab.testing.server", "--port", str(port)]
    names = {field.name for field in fields(ProviderSimulatorOptions)}
    for name, value in options.items():
        if name not in names:
            raise TypeError(f"unknown option {name}; use {', '.join(sorted(names))}")
        if value is not None:
            command += ["--set", f"{name}={json.dumps(value)}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            line = process.stdout.readline().strip()
            if not line.startswith("http"):
                raise RuntimeError(f"the simulator did not start; its output: {line!r}")
            yield RemoteSimulator(url=line, pid=process.pid)
        finally:
            process.kill()
