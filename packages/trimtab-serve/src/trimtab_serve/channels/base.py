"""The interface of a channel: a chat platform, or the schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trimtab_serve.queue.messages import OutboundMessage


class Channel(Protocol):
    """Posts incoming messages with `AgentService.post`, and sends replies."""

    @property
    def name(self) -> str:
        """The channel name in its routes, such as `telegram`."""
        ...

    @property
    def routes(self) -> Sequence[Any]:
        """Starlette routes that the HTTP server adds for it, such as a webhook. Often there are
        none."""
        ...

    async def run(self) -> None:
        """Receive messages until cancelled."""
        ...

    async def deliver(self, reply: OutboundMessage) -> None:
        """Send one reply. Raises the errors of `delivery.DeliverReply`."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...
