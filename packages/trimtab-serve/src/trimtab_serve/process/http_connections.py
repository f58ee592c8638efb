"""Limit HTTP connections, so that a client with many slow connections cannot shut others out.

Idle connections, which wait for headers or between two requests, may be closed to make room. The
one that has waited longest is closed first, as in nginx. Connections from addresses without a valid
key are closed before others. So the server always accepts and reads a new connection, however many
others are half-open. Connections with a running request are not closed. When the maximum number of
requests is running, the next request gets a 503, unless it is a probe.

A request in tiny pieces is limited as well, because a chunk or a packet of one byte costs as much
to parse as a large one.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from trimtab_serve.agent.config.spec import ServeSpec
from trimtab_serve.channels.http.authentication import group_client_address
from trimtab_serve.channels.http.middleware import PROBE_PATHS, send_problem_response
from trimtab_serve.channels.http.problems import HttpProblem, build_unavailable_problem
from trimtab_serve.metrics.recording import count_closed_connection, show_open_connections
from trimtab_serve.queue.bounded_dict import BoundedDict

HEADER_TIMEOUT_S = 10.0
"""Seconds in which the request line and all headers must arrive."""
KEEP_ALIVE_TIMEOUT_S = 75
"""Seconds that a connection is kept between two requests. nginx closes its own after a minute, so
with a longer time it never sends a request into a connection that is being closed."""
RESERVED_CONNECTIONS = 32
"""Connections above the limit whose requests are read, so that probes can be answered."""
RESERVED_CONNECTIONS_PER_ADDRESS = 8
"""Connections above the limit for one address."""
MAX_RAISED_DESCRIPTORS = 65_536
"""Maximum number of file descriptors that the process sets for itself. Tools inherit the limit, and
some programs check every possible descriptor."""
MAX_DEFAULT_CONNECTIONS = 10_000
"""Maximum number of connections if `serve.max_connections` is not set."""
MAX_KNOWN_ADDRESSES = 10_000
"""Maximum number of addresses with a valid key to remember. The newest are kept."""
RETRY_AFTER_S = 5
"""Seconds after which a client may repeat a request that was refused because of the limit."""
MAX_SMALL_CHUNKS = 4_096
"""Chunks that a body may have, besides one for each `MEAN_CHUNK_BYTES`."""
MEAN_CHUNK_BYTES = 256
FREE_SMALL_PIECES = 16
"""Small pieces of a request that are read as soon as they arrive."""
SMALL_PIECE_BYTES = 1_024
SMALL_PIECE_PAUSE_S = 0.05
"""Seconds without reading after each further small piece, while the kernel collects more."""
_HEADERS_LATE_RESPONSE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

log = logging.getLogger("trimtab.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The maximum numbers of connections."""

    total: int
    """Connections with a running request at the same time."""
    per_address: int
    """The same for one address, or for one IPv6 network."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks that `per_address` does not limit, because many callers share them."""


def raise_descriptor_limit() -> int:
    """Raise the process's limit of descriptors, within reason, and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_RAISED_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    limit = min(limit, MAX_RAISED_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError) as error:
            log.info("cannot raise the limit of %d descriptors: %s", soft, error)
    return get_descriptor_limit()


def get_descriptor_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_RAISED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def choose_connection_limits(serve_config: ServeSpec, descriptors: int) -> ConnectionLimits:
    """Return the limits of agent.yaml, or limits that suit the number of descriptors. Connections
    get half of the descriptors, because sessions, providers and tools also need some."""
    possible = max(1, descriptors // 2)
    total = serve_config.max_connections or min(possible, MAX_DEFAULT_CONNECTIONS)
    if total > possible:
        log.warning(
            "serve.max_connections is %d, but this process can have only %d connections, half of "
            "its %d descriptors; raise LimitNOFILE or `ulimit -n`",
            *(total, possible, descriptors),
        )
        total = possible
    per_address = serve_config.max_connections_per_address or max(1, total // 2)
    return ConnectionLimits(
        total=total,
        per_address=min(per_address, total),
        trusted_proxies=serve_config.trusted_proxies,
    )


class EvictableConnection(Protocol):
    """A connection that is counted and can be closed."""

    address: str
    """The client's address."""

    def evict(self) -> None:
        """End it at once."""
        ...


_WaitingConnections = OrderedDict[EvictableConnection, None]
"""Waiting connections. The one that has waited longest comes first."""


class OpenConnections:
    """All connections of a server, and those that may be closed to make room."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        """The maximum numbers of connections."""
        self._proxies = [ip_network(proxy) for proxy in limits.trusted_proxies]
        self._by_address: dict[str, set[EvictableConnection]] = {}
        self._known_addresses: BoundedDict[str, None] = BoundedDict(MAX_KNOWN_ADDRESSES)
        self._waiting_strangers = _WaitingConnections()
        self._waiting_known = _WaitingConnections()
        self._waiting_by_address: dict[str, _WaitingConnections] = {}
        self._answering: Counter[EvictableConnection] = Counter()
        self._answering_by_address: Counter[str] = Counter()
        self._count = 0
        show_open_connections(self.__len__)

    def __len__(self) -> int:
        return self._count

    def open(self, connection: EvictableConnection) -> None:
        """Add a new connection, and close others that wait if there are too many."""
        self._by_address.setdefault(connection.address, set()).add(connection)
        self._count += 1
        self.mark_waiting(connection)
        max_open = self._max_per_address(connection.address) + RESERVED_CONNECTIONS_PER_ADDRESS
        if len(self._by_address[connection.address]) > max_open:
            self._evict_first(self._waiting_by_address[connection.address])
        if self._count > self.limits.total + RESERVED_CONNECTIONS:
            # Strangers keep a few places, or a probe would not be read next to many idle clients.
            crowd = self._waiting_strangers
            if len(crowd) <= RESERVED_CONNECTIONS and self._waiting_known:
                crowd = self._waiting_known
            self._evict_first(crowd)

    def close(self, connection: EvictableConnection) -> None:
        """Remove a connection. Do nothing if it is already removed."""
        connections = self._by_address.get(connection.address, set())
        if connection not in connections:
            return
        connections.discard(connection)
        if not connections:
            del self._by_address[connection.address]
        self._count -= 1
        self.mark_busy(connection)
        if self._answering.pop(connection, 0):
            self._release_address(connection.address)

    def begin_request(self, connection: EvictableConnection) -> bool:
        """Return whether a request may run. If so, the connection is kept until `end_request`."""
        if not self._answering[connection] and (
            len(self._answering) >= self.limits.total
            or self._answering_by_address[connection.address]
            >= self._max_per_address(connection.address)
        ):
            return False
        self._answering[connection] += 1
        if self._answering[connection] == 1:
            self._answering_by_address[connection.address] += 1
        self.mark_busy(connection)
        return True

    def end_request(self, connection: EvictableConnection, *, had_valid_key: bool) -> None:
        """Note that a request was answered and the connection waits for the next one."""
        if had_valid_key:
            self._known_addresses[connection.address] = None
        if connection not in self._answering:
            return  # It was closed meanwhile.
        self._answering[connection] -= 1
        if not self._answering[connection]:
            del self._answering[connection]
            self._release_address(connection.address)
            self.mark_waiting(connection)

    def mark_waiting(self, connection: EvictableConnection) -> None:
        """Note that the connection waits for its client from now on."""
        if connection in self._by_address.get(connection.address, ()):
            self.mark_busy(connection)
            is_known = connection.address in self._known_addresses
            (self._waiting_known if is_known else self._waiting_strangers)[connection] = None
            connections = self._waiting_by_address.setdefault(connection.address, OrderedDict())
            connections[connection] = None

    def mark_busy(self, connection: EvictableConnection) -> None:
        """Note that the connection no longer waits for its client."""
        self._waiting_strangers.pop(connection, None)
        self._waiting_known.pop(connection, None)
        connections = self._waiting_by_address.get(connection.address)
        if connections is not None:
            connections.pop(connection, None)
            if not connections:
                del self._waiting_by_address[connection.address]

    def _max_per_address(self, address: str) -> int:
        if not self._proxies or not address:
            return self.limits.per_address
        network = ip_network(address)
        is_proxy = any(network.overlaps(proxy) for proxy in self._proxies)
        return self.limits.total if is_proxy else self.limits.per_address

    def _evict_first(self, waiting: _WaitingConnections) -> None:
        first = next(iter(waiting))  # there is one: the newcomer waits as well
        self.close(first)
        count_closed_connection("evicted")
        first.evict()

    def _release_address(self, address: str) -> None:
        self._answering_by_address[address] -= 1
        if not self._answering_by_address[address]:
            del self._answering_by_address[address]


class ChunkLimitedParser(h11.Connection):
    """A parser that stops in a body of too many small chunks."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self._chunks = 0
        self._body_bytes = 0

    @property
    def has_too_many_chunks(self) -> bool:
        """Whether the body of this request must be refused."""
        return self._chunks > MAX_SMALL_CHUNKS + self._body_bytes // MEAN_CHUNK_BYTES

    def next_event(self) -> Any:
        """Return the next event. None is parsed after too many chunks."""
        if self.has_too_many_chunks:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += 1
            self._body_bytes += len(event.data)
        return event

    def check_chunks(self) -> None:
        """Raise `HttpProblem` after too many chunks."""
        if self.has_too_many_chunks:
            raise HttpProblem(
                "bad-request",
                f"the body has {self._chunks:,} chunks in its first {self._body_bytes:,} bytes; "
                "send larger chunks, or the whole body with Content-Length",
            )


class LimitedHttpProtocol(H11Protocol):
    """A connection that is counted, and whose headers must arrive in time."""

    def __init__(self, *, open_connections: OpenConnections, **options: Any) -> None:
        super().__init__(**options)
        self.address = ""
        """The client's address."""
        self._open_connections = open_connections
        self._answer_request = self.app
        self.app = self._answer_if_allowed
        self._requests = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._small_pieces = 0
        self.conn: ChunkLimitedParser = ChunkLimitedParser()

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.address = group_client_address(self.client[0] if self.client else "")
        self._start_header_timer()
        self._open_connections.open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self._open_connections.close(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The first byte after a pause begins another request, and ends uvicorn's own timer.
        if self._header_timer is None and not self._requests:
            self._start_header_timer()
        self._header_bytes += len(data)
        if not self.conn.has_too_many_chunks:
            super().data_received(data)
        self._pause_after_small_piece(len(data))

    def pause_writing(self) -> None:
        # A client that does not read its response waits as long as one that sends nothing.
        self._open_connections.mark_waiting(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._requests:
            self._open_connections.mark_busy(self)
        super().resume_writing()

    def evict(self) -> None:
        """End the connection at once, whatever is still to be sent."""
        self.transport.abort()

    def _pause_after_small_piece(self, size: int) -> None:
        """Stop reading for a moment while a request comes in many small pieces."""
        if self.conn.their_state is h11.DONE:
            self._small_pieces = 0
        elif size < SMALL_PIECE_BYTES:
            self._small_pieces += 1
        else:
            return
        if self._small_pieces > FREE_SMALL_PIECES and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_later(SMALL_PIECE_PAUSE_S, self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def _receive_body(self, receive: Any) -> Any:
        message = await receive()
        self.conn.check_chunks()
        return message

    async def _answer_if_allowed(self, scope: Any, receive: Any, send: Any) -> None:
        self._stop_header_timer()
        if not self._open_connections.begin_request(self) and scope["path"] not in PROBE_PATHS:
            count_closed_connection("refused")
            problem = build_unavailable_problem(
                "this server, or this address, has the maximum number of requests in progress",
                RETRY_AFTER_S,
            )
            problem.headers["Connection"] = "close"
            await send_problem_response(problem, send)
            return
        self._requests += 1
        try:
            await self._answer_request(scope, partial(self._receive_body, receive), send)
        finally:
            self._requests -= 1
            had_valid_key = "key" in scope.get("trimtab", ())
            self._open_connections.end_request(self, had_valid_key=had_valid_key)

    def _start_header_timer(self) -> None:
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._give_up_on_headers)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up_on_headers(self) -> None:
        self._header_timer = None
        count_closed_connection("header_timeout")
        if self._header_bytes and not self.transport.is_closing():
            self.transport.write(_HEADERS_LATE_RESPONSE)
        self.transport.close()
