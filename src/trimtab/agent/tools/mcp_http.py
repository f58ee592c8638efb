"""An MCP server at an address: what it answers in one piece is of a length that is bounded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client

from trimtab.agent.tools.mcp_stdio import MESSAGE


class TooLong(httpx2.TransportError):
    """An answer that would fill the memory."""

    def __init__(self) -> None:
        super().__init__(f"a message of more than {MESSAGE:,} bytes")


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._stream:
            total += len(chunk)
            if total > MESSAGE:
                raise TooLong
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def http(url: str, headers: Mapping[str, str], patience: float) -> AsyncGenerator[Any]:
    """The transport to it, with headers sent along; patience is seconds between two bytes."""
    # What comes compressed would grow unseen.
    sent = {"Accept-Encoding": "identity", **headers}
    limits = httpx2.Timeout(30.0, read=patience)
    hooks = {"response": [_bound]}
    async with httpx2.AsyncClient(headers=sent, timeout=limits, event_hooks=hooks) as client:
        yield streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE)


async def _bound(response: httpx2.Response) -> None:
    if "text/event-stream" not in response.headers.get("content-type", ""):
        response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream))
