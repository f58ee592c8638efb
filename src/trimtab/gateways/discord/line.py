"""discord.py's way to Discord, led to the address that `agent.yaml` names.

The library has the address in a class, for all clients of a process. Here it is one client's own,
so that nothing else in the process is moved.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from discord.gateway import DiscordWebSocket
from discord.http import HTTPClient, Route
from discord.webhook.async_ import AsyncWebhookAdapter

if TYPE_CHECKING:
    import aiohttp


def led(route: Route, api: str) -> Route:
    """A route at another address."""
    if route.url.startswith(Route.BASE):
        route.url = api + route.url.removeprefix(Route.BASE)
    return route


class Line(HTTPClient):
    """Requests and the websocket, at the API's address."""

    def __init__(self, given: HTTPClient, api: str, *, limited: float) -> None:
        super().__init__(
            given.loop,
            given.connector or None,
            proxy=given.proxy,
            proxy_auth=given.proxy_auth,
            http_trace=given.http_trace,
        )
        self.api = api.rstrip("/")
        # The library allows no less than 30 s here, for fear of bots that hammer on. What is
        # refused is put off by as long as Discord says, so we can wait elsewhere.
        self.max_ratelimit_timeout = limited

    async def request(self, route: Route, **given: Any) -> Any:
        """One request."""
        try:
            return await super().request(led(route, self.api), **given)
        except asyncio.CancelledError:
            # Who is broken off while Discord wants no requests at all would let the library hold
            # back all others for ever.
            self._global_over.set()
            raise

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """The gateway: the public one only where the API is the public one."""
        public = str(DiscordWebSocket.DEFAULT_GATEWAY)
        if url.startswith(public) and self.api != Route.BASE:
            told = await self.request(Route("GET", "/gateway/bot"))
            url = str(told["url"]) + url.removeprefix(public)
        return await super().ws_connect(url, compress=compress)


class Answers(AsyncWebhookAdapter):
    """Answers to slash commands, at the API's address."""

    def __init__(self, api: str) -> None:
        super().__init__()
        self._api = api.rstrip("/")

    async def request(self, route: Route, session: aiohttp.ClientSession, **given: Any) -> Any:
        """One request."""
        return await super().request(led(route, self._api), session, **given)
