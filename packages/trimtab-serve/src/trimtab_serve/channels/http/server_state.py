"""The state of the HTTP server: one value for the whole application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_serve.agent.config.spec import ServeSpec
from trimtab_serve.api_keys.protocol import ApiKeyStore
from trimtab_serve.channels.http.authentication import CallerAuthentication
from trimtab_serve.channels.http.hub import SessionHubs
from trimtab_serve.channels.http.tenant_requests import TenantRequests
from trimtab_serve.service.service import AgentService


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
