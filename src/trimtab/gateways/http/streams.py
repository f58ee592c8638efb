"""An answer that goes on until it ends or its reader has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, cast

from starlette.types import Receive, Scope, Send

from trimtab.observe.serving import streaming

MEDIA = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Server-sent events."""

    frames: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
    """What is sent; closed whatever happens."""
    gone: Callable[[], Awaitable[None]] | None = None
    """Called where the reader has gone before the end."""

    async def send(self, headers: list[tuple[bytes, bytes]], receive: Receive, send: Send) -> None:
        """Send it all, as fast as it is read."""
        start = [(b"content-type", MEDIA.encode()), (b"x-accel-buffering", b"no"), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        pump = asyncio.create_task(self._pump(send))
        leave = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({pump, leave}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = pump.done() and not pump.cancelled() and pump.exception() is None
            for task in (pump, leave):
                task.cancel()
            await asyncio.gather(pump, leave, return_exceptions=True)
        if not ended and self.gone is not None:
            await self.gone()
        error = None if pump.cancelled() else pump.exception()
        if error is not None and not isinstance(error, OSError):
            raise error

    async def _pump(self, send: Send) -> None:
        with streaming():
            async with self.frames() as frames, aclosing(cast("Any", frames)):
                async for frame in frames:
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def wants_stream(scope: Scope) -> bool:
    """Whether the caller asks for events rather than for JSON."""
    accept = b"".join(value for name, value in scope["headers"] if name == b"accept")
    return MEDIA in accept.decode("latin-1").lower()
