"""What is offered over HTTP, and how: one value for the whole application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.agent.config.spec import ServeSpec
from trimtab.server.channels.http.api_keys import ApiKeyFile
from trimtab.server.channels.http.authentication import CallerAuthentication
from trimtab.server.channels.http.hub import SessionHubs
from trimtab.server.service import AgentService


@dataclass(slots=True, kw_only=True)
class HttpServerState:
    """What is offered over HTTP, and how."""

    service: AgentService
    """Agents, sessions and queue."""
    serve_config: ServeSpec = field(default_factory=ServeSpec)
    """Limits."""
    key_file: ApiKeyFile | None = None
    """Who may ask; None where only this machine can."""
    schedule_turn: Callable[[str], Awaitable[None]]
    """Lets a turn of a session run although nothing new was said."""
    render_metrics: Callable[[], tuple[bytes, str]] | None = None
    """What `/metrics` answers, and its media type; None where nothing is measured."""
    channel_routes: Sequence[Any] = ()
    """Starlette routes of channels, such as webhooks: they check for themselves who asks."""
    draining: bool = False
    """Whether the server is about to stop: nothing new is taken in, and followers are told."""
    closing: bool = False
    """Whether those who wait for an answer are told, too."""
    background_tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """What goes on when an answer has been given."""
    hubs: SessionHubs = field(init=False)
    """What is being written."""
    authentication: CallerAuthentication = field(init=False)
    """Tells callers by their keys, and holds each to its pace."""

    def __post_init__(self) -> None:
        self.hubs = SessionHubs(self.service.store, self.service.event_bus)
        self.authentication = CallerAuthentication(
            self.key_file, self.serve_config.requests_per_minute
        )

    def drain(self) -> None:
        """Take in nothing new, and send those away who only follow."""
        self.draining = True
        self.hubs.notify_all()

    async def close(self) -> None:
        """Send everybody away."""
        self.draining = self.closing = True
        self.hubs.notify_all()
        for task in self.background_tasks:
            task.cancel()
        await asyncio.gather(*self.background_tasks, return_exceptions=True)

    def run_in_background(self, coroutine: Any) -> None:
        """Let something run that no answer waits for."""
        task = asyncio.ensure_future(coroutine)
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)
