"""The simulator over HTTP: three APIs, and endpoints to control it.

With the control endpoints, a test in another process controls the simulator and reads its records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.provider_error_catalog import PROVIDER_FAULTS
from trimtab.testing.server.responses import SimulatedResponse
from trimtab.testing.server.simulator import ProviderSimulator

Endpoint = Callable[[Request], Awaitable[Response]]
_OPTIONS = frozenset(field.name for field in fields(ProviderSimulatorOptions))


def build_control_routes(simulator: ProviderSimulator) -> list[Route]:
    """Return the routes below `/_control`."""
    control = _Control(simulator)
    return [
        Route("/_control", control.state),
        Route("/_control/faults", control.faults),
        Route("/_control/requests", control.requests, methods=["GET", "DELETE"]),
        Route("/_control/requests/{number:int}", control.one),
        Route("/_control/requests/{number:int}/raw", control.raw),
        Route("/_control/script", _report_caller_errors(control.script), methods=["POST"]),
        Route("/_control/clock", _report_caller_errors(control.clock), methods=["POST"]),
        Route("/_control/options", _report_caller_errors(control.options), methods=["POST"]),
        Route("/_control/reset", control.reset, methods=["POST"]),
    ]


def _report_caller_errors(endpoint: Endpoint) -> Endpoint:
    """Report the caller's mistakes in the body."""

    async def checked(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (KeyError, TypeError, ValueError) as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=400)

    return checked


class _Control:
    def __init__(self, simulator: ProviderSimulator) -> None:
        self._simulator = simulator

    async def state(self, request: Request) -> Response:
        del request
        return self._state_response()

    async def faults(self, request: Request) -> Response:
        del request
        return JSONResponse({name: fault.kind for name, fault in PROVIDER_FAULTS.items()})

    async def requests(self, request: Request) -> Response:
        records = self._simulator.records
        if request.method == "DELETE":
            records.clear()
            return self._state_response()
        since = int(request.query_params.get("since", "0"))
        key = request.query_params.get("key")
        recordings = [r for r in records.requests if r.number > since and key in (None, r.key)]
        return JSONResponse([record.to_json() for record in recordings])

    async def one(self, request: Request) -> Response:
        return JSONResponse(self._record(request).to_json())

    async def raw(self, request: Request) -> Response:
        return Response(self._record(request).raw, media_type="application/octet-stream")

    def _record(self, request: Request) -> Any:
        number = request.path_params["number"]
        return next(r for r in self._simulator.records.requests if r.number == number)

    async def script(self, request: Request) -> Response:
        script_json: dict[str, Any] = await request.json()
        add = bool(script_json.pop("add", False))
        script = self._simulator.script
        (script.add_replies if add else script.set_replies)(
            script_json.pop("replies", ()), **script_json
        )
        return JSONResponse({"left": script.steps_left(script_json.get("key", ""))})

    async def clock(self, request: Request) -> Response:
        self._simulator.advance_clock(float((await request.json())["advance"]))
        return self._state_response()

    async def options(self, request: Request) -> Response:
        options_json: dict[str, Any] = await request.json()
        if unknown := sorted(set(options_json) - _OPTIONS):
            raise ValueError(
                f"unknown option {', '.join(unknown)}; use {', '.join(sorted(_OPTIONS))}"
            )
        if "api_keys" in options_json:
            options_json["api_keys"] = tuple(options_json["api_keys"])
        self._simulator.configure(**options_json)
        return self._state_response()

    async def reset(self, request: Request) -> Response:
        del request
        self._simulator.reset()
        return self._state_response()

    def _state_response(self) -> Response:
        options = asdict(self._simulator.options)
        if callable(options["tokenizer"]):
            options["tokenizer"] = repr(options["tokenizer"])
        now = self._simulator.now()
        return JSONResponse({"stats": self._simulator.stats(), "options": options, "now": now})


DIALECT_BY_PATH = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
}
DIALECT_BY_COUNT_PATH = {
    "/v1/messages/count_tokens": "anthropic",
    "/v1/responses/input_tokens": "openai_responses",
}
"""The endpoints that count the tokens of a request. Chat Completions has none."""


class SimulatedHttpResponse(Response):
    """A response as it is sent. If it is to be cut, it is incomplete and the server closes the
    connection."""

    def __init__(self, outcome: SimulatedResponse) -> None:
        is_stream = outcome.events is not None
        super().__init__(
            content=b"" if is_stream else outcome.body_bytes(),
            status_code=outcome.status,
            headers=dict(outcome.headers),
            media_type="text/event-stream" if is_stream else "application/json",
        )
        if is_stream:
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
            await _send_body(send, whole[: outcome.cut] if cut else whole, more=cut)
            return
        for chunk in outcome.stream_chunks():
            if outcome.pace:
                await asyncio.sleep(outcome.pace)
            await _send_body(send, chunk, more=True)
        if outcome.cut is None:
            await _send_body(send, b"", more=False)


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _endpoint(
    handle: Callable[[str, Mapping[str, str], bytes], SimulatedResponse], dialect: str
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return SimulatedHttpResponse(handle(dialect, request.headers, await request.body()))

    return endpoint


def build_provider_app(simulator: ProviderSimulator) -> Starlette:
    """Return an ASGI application for a simulator."""
    apis = [
        Route(path, _endpoint(handle, dialect), methods=["POST"])
        for handle, paths in (
            (simulator.handle_request, DIALECT_BY_PATH),
            (simulator.handle_count_request, DIALECT_BY_COUNT_PATH),
        )
        for path, dialect in paths.items()
    ]
    return Starlette(routes=[*apis, *build_control_routes(simulator)])
