"""HTTP on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette

from trimtab.agent.config.spec import ServeSpec
from trimtab.cli.serve.http_connections import (
    KEEP_ALIVE_TIMEOUT_S,
    ConnectionLimits,
    LimitedHttpProtocol,
    OpenConnections,
    choose_connection_limits,
    get_descriptor_limit,
)
from trimtab.server.channels.http.api_keys import GROUP_AND_OTHER_BITS, ApiKeyFile
from trimtab.server.channels.http.size_origin_and_header_middleware import is_loopback_host

LISTEN_BACKLOG = 2_048
"""Connections that wait to be taken."""
ACCEPT_BATCH = 16
"""Connections that are taken at once: before any of them is counted, each has a descriptor."""
SHUTDOWN_GRACE_S = 5
"""Seconds that connections have to end after the last turn has."""


class ManagedUvicornServer(uvicorn.Server):
    """A server that leaves signals to whoever runs it, and says when it is there."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        """Set when requests are answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets=sockets)
        for listener in sockets or ():
            listener.listen(LISTEN_BACKLOG)  # asyncio has set it to `ACCEPT_BATCH`
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Nothing: the turns come first, and then the server."""
        yield


def open_listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket; raises `ValueError` with what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small writes at once; else each waits for 40 ms.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(LISTEN_BACKLOG)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"port {port} of {host} is taken; choose another with --port, or 0 for a free one"
            ) from None
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return found


def build_http_server(
    app: Starlette, *, drain_seconds: float, limits: ConnectionLimits | None = None
) -> ManagedUvicornServer:
    """A server that logs its own faults only. Without limits, those are chosen that suit the number
    of descriptors."""
    limits = limits or choose_connection_limits(ServeSpec(), get_descriptor_limit())
    connection = partial(LimitedHttpProtocol, open_connections=OpenConnections(limits))
    return ManagedUvicornServer(
        uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
            http=cast("Any", connection),
            backlog=ACCEPT_BATCH,
            timeout_graceful_shutdown=int(drain_seconds) + SHUTDOWN_GRACE_S,
            timeout_keep_alive=KEEP_ALIVE_TIMEOUT_S,
        )
    )


def load_api_keys(host: str, key_file: Path | None) -> ApiKeyFile | None:
    """The keys that are accepted; without any only this machine may listen."""
    if key_file is None:
        if is_loopback_host(host):
            return None
        raise ValueError(
            f"listening on {host} lets others in, so API keys are needed: make one with `trimtab "
            "keys create NAME`, and write `keys: keys.json` under `serve` in agent.yaml; or listen "
            "on 127.0.0.1"
        )
    if not key_file.exists():
        raise ValueError(
            f"the file of API keys {key_file} does not exist; make a key with `trimtab keys create "
            f"NAME --file {key_file}`"
        )
    found = ApiKeyFile(key_file)
    if key_file.stat().st_mode & GROUP_AND_OTHER_BITS:
        raise ValueError(f"{key_file} can be read by others; run: chmod 600 {key_file}")
    return found


def build_listener_url(listener: socket.socket) -> str:
    """Where a socket is reached from this machine."""
    return build_local_url(*listener.getsockname()[:2])


def build_local_url(host: str, port: int) -> str:
    """Where a server is reached from this machine that listens on this address."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
