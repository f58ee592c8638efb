"""Serve HTTP on a socket until a stop is requested."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Generator, Sequence
from functools import partial
from ipaddress import ip_network
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette

from trimtab_serve.agent.config.spec import ServeSpec
from trimtab_serve.process.http_connections import (
    KEEP_ALIVE_TIMEOUT_S,
    ConnectionLimits,
    LimitedHttpProtocol,
    OpenConnections,
    choose_connection_limits,
    get_descriptor_limit,
)

LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
"""Where a reverse proxy on this machine calls from."""
LISTEN_BACKLOG = 2_048
"""Maximum number of connections that wait to be accepted."""
ACCEPT_BATCH = 16
"""Connections to accept at once. Each has a descriptor before it is counted."""
SHUTDOWN_GRACE_S = 5
"""Seconds that connections have to end after the last turn."""


class ManagedUvicornServer(uvicorn.Server):
    """A server that leaves signals to its owner, and reports when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        """Set when the server answers requests."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start answering requests."""
        await super().startup(sockets=sockets)
        for listener in sockets or ():
            listener.listen(LISTEN_BACKLOG)  # asyncio has set it to `ACCEPT_BATCH`
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do nothing: the owner first ends the turns, and then the server."""
        yield


def open_listening_socket(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Open a listening socket. Raise `ValueError` with what to do if it cannot be opened.

    `option` is the one that sets the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small writes at once; else each waits for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"port {port} of {host} is in use; choose another with {option}, or 0 for a free "
                "one"
            ) from None
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return listener


def build_http_server(
    app: Starlette, *, drain_seconds: float, limits: ConnectionLimits | None = None
) -> ManagedUvicornServer:
    """Build a server that logs only its own errors. Without limits, it chooses those that suit the
    number of descriptors."""
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
            forwarded_allow_ips=list_forwarding_networks(limits.trusted_proxies),
        )
    )


def list_forwarding_networks(trusted_proxies: Sequence[str]) -> list[str]:
    """Return the networks whose `X-Forwarded-For` counts, as a listener on IPv6 sees them too."""
    networks = [ip_network(proxy) for proxy in (*LOOPBACK_ADDRESSES, *trusted_proxies)]
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in networks
        if network.version == 4
    ]
    return [*map(str, networks), *mapped]


def build_listener_url(listener: socket.socket) -> str:
    """Return the URL of a socket, as seen from this machine."""
    return build_local_url(*listener.getsockname()[:2])


def build_local_url(host: str, port: int) -> str:
    """Return the URL of a server that listens on this address, as seen from this machine."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
