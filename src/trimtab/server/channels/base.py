"""The interface of a channel: a chat platform, or the schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trimtab.server.queue.inbound_outbound import OutboundMessage


class Channel(Protocol):
    """Takes in messages, by `AgentService.post`, and sends replies."""

    @property
    def name(self) -> str:
        """What its routes are called: `telegram`."""
        ...

    @property
    def routes(self) -> Sequence[Any]:
        """Starlette routes that the HTTP server offers for it, such as a webhook; often none."""
        ...

    async def run(self) -> None:
        """Take in what comes, until cancelled."""
        ...

    async def deliver(self, reply: OutboundMessage) -> None:
        """Send one reply; raises as `delivery.DeliverReply` says."""
        ...

    async def close(self) -> None:
        """Give back whatever is held."""
        ...
