"""Leads discord.py to the address that `agent.yaml` names.

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


def redirect_discord_route(route: Route, api_url: str) -> Route:
    """A route at another address."""
    if route.url.startswith(Route.BASE):
        route.url = api_url + route.url.removeprefix(Route.BASE)
    return route


class DiscordHttpClient(HTTPClient):
    """Requests and the websocket, at the API's address."""

    def __init__(
        self, library_client: HTTPClient, api_url: str, *, max_rate_limit_wait_s: float
    ) -> None:
        super().__init__(
            library_client.loop,
            library_client.connector or None,
            proxy=library_client.proxy,
            proxy_auth=library_client.proxy_auth,
            http_trace=library_client.http_trace,
        )
        self.api_url = api_url.rstrip("/")
        # The library allows no less than 30 s here, for fear of bots that hammer on. What is
        # refused is put off by as long as Discord says, so we can wait elsewhere.
        self.max_ratelimit_timeout = max_rate_limit_wait_s

    async def request(self, route: Route, **request_options: Any) -> Any:
        """One request."""
        try:
            return await super().request(
                redirect_discord_route(route, self.api_url), **request_options
            )
        except asyncio.CancelledError:
            # Who is broken off while Discord wants no requests at all would let the library hold
            # back all others for ever.
            self._global_over.set()
            raise

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """The gateway: the public one only where the API is the public one."""
        public = str(DiscordWebSocket.DEFAULT_GATEWAY)
        if url.startswith(public) and self.api_url != Route.BASE:
            gateway = await self.request(Route("GET", "/gateway/bot"))
            url = str(gateway["url"]) + url.removeprefix(public)
        return await super().ws_connect(url, compress=compress)


class RedirectedWebhookAdapter(AsyncWebhookAdapter):
    """Answers to slash commands, at the API's address."""

    def __init__(self, api_url: str) -> None:
        super().__init__()
        self._api_url = api_url.rstrip("/")

    async def request(
        self, route: Route, session: aiohttp.ClientSession, **request_options: Any
    ) -> Any:
        """One request."""
        return await super().request(
            redirect_discord_route(route, self._api_url), session, **request_options
        )
