"""Make discord.py use the API address in `agent.yaml`.

The library stores the address in a class, for all clients of a process. Here it belongs to one
client, so nothing else in the process is affected.
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
    """Return the route at another address."""
    if route.url.startswith(Route.BASE):
        route.url = api_url + route.url.removeprefix(Route.BASE)
    return route


class DiscordHttpClient(HTTPClient):
    """Sends requests and opens the websocket at the API's address."""

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
        # The library allows no less than 30 s here, to stop bots that retry too fast. A refused
        # request is postponed for as long as Discord says, so the wait happens elsewhere.
        self.max_ratelimit_timeout = max_rate_limit_wait_s

    async def request(self, route: Route, **request_options: Any) -> Any:
        """Send one request."""
        try:
            return await super().request(
                redirect_discord_route(route, self.api_url), **request_options
            )
        except asyncio.CancelledError:
            # If a request is cancelled during a global rate limit, the library would block all
            # others forever.
            self._global_over.set()
            raise

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """Connect to the gateway. The public gateway is used only with the public API."""
        public = str(DiscordWebSocket.DEFAULT_GATEWAY)
        if url.startswith(public) and self.api_url != Route.BASE:
            gateway = await self.request(Route("GET", "/gateway/bot"))
            url = str(gateway["url"]) + url.removeprefix(public)
        return await super().ws_connect(url, compress=compress)


class RedirectedWebhookAdapter(AsyncWebhookAdapter):
    """Sends answers to slash commands to the API's address."""

    def __init__(self, api_url: str) -> None:
        super().__init__()
        self._api_url = api_url.rstrip("/")

    async def request(
        self, route: Route, session: aiohttp.ClientSession, **request_options: Any
    ) -> Any:
        """Send one request."""
        return await super().request(
            redirect_discord_route(route, self._api_url), session, **request_options
        )
