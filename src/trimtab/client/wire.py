"""Requests to a server, and streams that are taken up again where they broke off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, TypeVar

from trimtab.client.problems import Refused, Unreachable, refusal
from trimtab.client.streams import ALIVE, StreamEvent, events_of
from trimtab.client.typed import made

try:
    import httpx2
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the client needs httpx2: pip install 'trimtab[client]'", name="httpx2"
    ) from error

T = TypeVar("T")

SILENCE = 60.0
"""Seconds without a byte after which a stream is taken for broken; the server says that it is
alive every 15."""
FIRST, LONGEST = 0.1, 5.0
"""Seconds before the second try, and at most before any."""
PASSING = frozenset({429, 502, 503, 504})
"""Answers that another try may change."""


class Wire:
    """One server."""

    def __init__(self, url: str, key: str | None, *, timeout: float, patience: float) -> None:
        self.http = httpx2.AsyncClient(
            base_url=url,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            timeout=timeout,
            # Each stream has a connection for as long as it lasts.
            limits=httpx2.Limits(max_connections=None),
        )
        """What sends."""
        self.patience = patience
        """Seconds that a stream which broke off is tried again for."""

    async def close(self) -> None:
        await self.http.aclose()

    async def ask(self, kind: type[T], method: str, path: str, **sent: Any) -> T:
        """What is answered, as a value of a type."""
        return made(kind, (await self.answer(method, path, **sent)).json())

    async def answer(self, method: str, path: str, **sent: Any) -> httpx2.Response:
        """One request; raises `Refused` and `Unreachable`."""
        try:
            answer = await self.http.request(method, path, **sent)
        except httpx2.TransportError as error:
            raise _unreachable(error) from error
        if answer.is_error:
            raise refusal(answer.status_code, answer.content, answer.headers)
        return answer


class Reading:
    """A stream of events without a gap or a repeat, however often its connection breaks."""

    def __init__(self, wire: Wire, method: str, path: str, *, body: Any = None) -> None:
        self._wire = wire
        self._request = (method, path)
        self._body = body
        self.after: str | None = None
        """The id of the last event; what follows it is asked for."""
        self.breaks = 0
        """How often the connection broke."""

    async def run(self, last: Collection[str] = ()) -> AsyncGenerator[StreamEvent]:
        """Events up to and with one of the `last` kinds; without any, until it is closed."""
        clock, failures, heard = asyncio.get_running_loop().time, 0, -1.0
        while True:
            wait = 0.0
            try:
                async with aclosing(self._once()) as events:
                    async for event in events:
                        if event.kind == "bye":
                            continue
                        failures, heard, self.after = 0, clock(), event.id or self.after
                        if event is not ALIVE:
                            yield event
                        if event.kind in last:
                            return
            except httpx2.TransportError as error:
                if self._is_lost(heard):
                    raise _unreachable(error) from error
            except Refused as refused:
                if self._is_lost(heard) or refused.status not in PASSING:
                    raise
                wait = min(refused.retry_after or 0.0, LONGEST)
            else:
                heard = clock() if heard < 0 else heard  # it was reached
                if self._is_lost(heard):
                    raise Unreachable("the server ends the stream before its last event")
            self.breaks += 1
            failures += 1
            pause = min(LONGEST, FIRST * 2 ** min(failures - 1, 8))
            await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))  # noqa: S311 - jitter, nothing secret

    def _is_lost(self, heard: float) -> bool:
        """Whether nothing was heard for longer than is waited, or ever."""
        silent = asyncio.get_running_loop().time() - heard
        return heard < 0 or silent > self._wire.patience

    async def _once(self) -> AsyncGenerator[StreamEvent]:
        http, headers = self._wire.http, {"Accept": "text/event-stream"}
        if self.after is not None:
            headers["Last-Event-ID"] = self.after
        timeout = httpx2.Timeout(http.timeout.connect, read=SILENCE)
        asked = http.stream(*self._request, json=self._body, headers=headers, timeout=timeout)
        async with asked as answer:
            if answer.is_error:
                raise refusal(answer.status_code, await answer.aread(), answer.headers)
            async with aclosing(events_of(answer.aiter_bytes())) as events:
                async for event in events:
                    yield event


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(f"the server cannot be reached: {str(error) or type(error).__name__}")
