"""The state of the HTTP server: one value for the whole application."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from trimtab_serve.agent.config.spec import ServeSpec
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.channels.http.authentication import CallerAuthentication
from trimtab_serve.channels.http.hub import SessionHubs
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.keyed_locks import KeyedLocks
from trimtab_serve.service.service import AgentService

MAX_READS = 2
"""Reads of logs by one tenant at the same time. Each may take a thread, and threads take time from
the event loop."""


class TenantRequests:
    """Counts the requests and the reads of each tenant."""

    def __init__(self, max_requests: int | None) -> None:
        """Initialise the counts. `max_requests` is the number of requests of one tenant that are
        answered at the same time, streams included. None for no limit."""
        self._max_requests = max_requests
        self._requests: Counter[str] = Counter()
        self._reads = KeyedLocks(MAX_READS)

    @contextmanager
    def hold_request(self, tenant: str) -> Generator[None]:
        """Answer a request in the block. Raises `HttpProblem` with 429 if there are too many."""
        if self._max_requests is not None and self._requests[tenant] >= self._max_requests:
            raise HttpProblem(
                "too-many-requests",
                f"{self._max_requests:,} requests and streams of tenant {tenant} are open; close "
                "some of them",
                headers={"Retry-After": "1"},
            )
        self._requests[tenant] += 1
        try:
            yield
        finally:
            self._requests[tenant] -= 1
            if not self._requests[tenant]:
                del self._requests[tenant]

    def hold_read(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Read logs in the block, after earlier reads of the tenant."""
        return self._reads.hold(tenant)


@dataclass(slots=True, kw_only=True)
class HttpServerState:
    """The state of the HTTP server."""

    service: AgentService
    """Agents, sessions and queue."""
    serve_config: ServeSpec = field(default_factory=ServeSpec)
    """Limits."""
    api_keys: ApiKeyStore | None = None
    """The API keys that callers need. None if only this machine can call."""
    schedule_turn: Callable[[str], Awaitable[None]]
    """Requests a turn of a session that has no new message."""
    render_metrics: Callable[[], tuple[bytes, str]] | None = None
    """Returns the body of `/metrics` and its media type. None if there are no metrics."""
    channel_routes: Sequence[Any] = ()
    """Starlette routes of channels, such as webhooks. They authenticate their callers
    themselves."""
    max_requests_per_tenant: int | None = None
    """Requests of one tenant that are answered at the same time, streams included. None for no
    limit."""
    draining: bool = False
    """Whether the server is about to stop. It accepts nothing new, and followers must reconnect."""
    closing: bool = False
    """Whether callers that wait for an answer must also reconnect."""
    background_tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Tasks that continue after a response."""
    hubs: SessionHubs = field(init=False)
    """The replies that are being written."""
    authentication: CallerAuthentication = field(init=False)
    """Identifies callers by their keys, and limits their request rates."""
    tenant_requests: TenantRequests = field(init=False)
    """Limits what one tenant's requests take at the same time."""
    abandoned_messages: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Sessions and keys of waiting messages whose callers have gone."""

    def __post_init__(self) -> None:
        self.tenant_requests = TenantRequests(self.max_requests_per_tenant)
        self.hubs = SessionHubs(self.service.store, self.service.event_bus)
        self.authentication = CallerAuthentication(
            self.api_keys, self.serve_config.requests_per_minute
        )

    def drain(self) -> None:
        """Accept nothing new, and end the streams of followers."""
        self.draining = True
        self.hubs.notify_all()

    async def close(self) -> None:
        """End all streams."""
        self.draining = self.closing = True
        self.hubs.notify_all()
        for task in self.background_tasks:
            task.cancel()
        await asyncio.gather(*self.background_tasks, return_exceptions=True)

    def run_in_background(self, coroutine: Any) -> None:
        """Run a coroutine that no response waits for."""
        task = asyncio.ensure_future(coroutine)
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)
