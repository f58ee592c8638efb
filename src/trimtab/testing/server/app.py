"""The simulator behind HTTP: three APIs, and endpoints to control it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trimtab.testing.server.control import routes
from trimtab.testing.server.outcome import Outcome
from trimtab.testing.server.simulator import Simulator

PATHS = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
}


class _Sent(Response):
    """An outcome as it goes over the wire. Where it is to be cut, it ends without an end, and the
    server closes the connection."""

    def __init__(self, outcome: Outcome) -> None:
        streamed = outcome.events is not None
        super().__init__(
            content=b"" if streamed else outcome.whole(),
            status_code=outcome.status,
            headers=dict(outcome.headers),
            media_type="text/event-stream" if streamed else "application/json",
        )
        if streamed:
            del self.headers["content-length"]
        self._outcome = outcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        outcome = self._outcome
        if outcome.delay:
            await asyncio.sleep(outcome.delay)
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        if outcome.events is None:
            whole = bytes(self.body)
            cut = outcome.cut is not None
            await _body(send, whole[: outcome.cut] if cut else whole, more=cut)
            return
        for chunk in outcome.chunks():
            if outcome.pace:
                await asyncio.sleep(outcome.pace)
            await _body(send, chunk, more=True)
        if outcome.cut is None:
            await _body(send, b"", more=False)


async def _body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _endpoint(simulator: Simulator, dialect: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        raw = await request.body()
        return _Sent(simulator.answer(dialect, request.headers, raw))

    return endpoint


def app_of(simulator: Simulator) -> Starlette:
    """An ASGI application around a simulator."""

    async def count(request: Request) -> Response:
        return _Sent(simulator.count(request.headers, await request.body()))

    apis = [
        Route(path, _endpoint(simulator, dialect), methods=["POST"])
        for path, dialect in PATHS.items()
    ]
    counted = Route("/v1/messages/count_tokens", count, methods=["POST"])
    return Starlette(routes=[*apis, counted, *routes(simulator)])
