"""Endpoints by which a test in another process controls the simulator and sees what it got."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trimtab.testing.server.faults import FAULTS
from trimtab.testing.server.options import Options
from trimtab.testing.server.simulator import Simulator

Endpoint = Callable[[Request], Awaitable[Response]]
_OPTIONS = frozenset(field.name for field in fields(Options))


def routes(simulator: Simulator) -> list[Route]:
    """All below `/_control`."""
    made = _Control(simulator)
    return [
        Route("/_control", made.state),
        Route("/_control/faults", made.faults),
        Route("/_control/requests", made.requests, methods=["GET", "DELETE"]),
        Route("/_control/requests/{number:int}", made.one),
        Route("/_control/requests/{number:int}/raw", made.raw),
        Route("/_control/script", _checked(made.script), methods=["POST"]),
        Route("/_control/clock", _checked(made.clock), methods=["POST"]),
        Route("/_control/options", _checked(made.options), methods=["POST"]),
        Route("/_control/reset", made.reset, methods=["POST"]),
    ]


def _checked(endpoint: Endpoint) -> Endpoint:
    """What the caller got wrong is said in the body."""

    async def checked(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (KeyError, TypeError, ValueError) as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=400)

    return checked


class _Control:
    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    async def state(self, request: Request) -> Response:
        del request
        return self._told()

    async def faults(self, request: Request) -> Response:
        del request
        return JSONResponse({name: fault.kind for name, fault in FAULTS.items()})

    async def requests(self, request: Request) -> Response:
        records = self._simulator.records
        if request.method == "DELETE":
            records.clear()
            return self._told()
        since = int(request.query_params.get("since", "0"))
        key = request.query_params.get("key")
        kept = [r for r in records.all if r.number > since and key in (None, r.key)]
        return JSONResponse([record.to_json() for record in kept])

    async def one(self, request: Request) -> Response:
        return JSONResponse(self._record(request).to_json())

    async def raw(self, request: Request) -> Response:
        return Response(self._record(request).raw, media_type="application/octet-stream")

    def _record(self, request: Request) -> Any:
        number = request.path_params["number"]
        return next(r for r in self._simulator.records.all if r.number == number)

    async def script(self, request: Request) -> Response:
        told: dict[str, Any] = await request.json()
        add = bool(told.pop("add", False))
        script = self._simulator.script
        (script.add if add else script.set)(told.pop("replies", ()), **told)
        return JSONResponse({"left": script.left(told.get("key", ""))})

    async def clock(self, request: Request) -> Response:
        self._simulator.advance(float((await request.json())["advance"]))
        return self._told()

    async def options(self, request: Request) -> Response:
        told: dict[str, Any] = await request.json()
        if unknown := sorted(set(told) - _OPTIONS):
            raise ValueError(
                f"no option {', '.join(unknown)}; known: {', '.join(sorted(_OPTIONS))}"
            )
        if "api_keys" in told:
            told["api_keys"] = tuple(told["api_keys"])
        self._simulator.configure(**told)
        return self._told()

    async def reset(self, request: Request) -> Response:
        del request
        self._simulator.reset()
        return self._told()

    def _told(self) -> Response:
        options = asdict(self._simulator.options)
        if callable(options["tokenizer"]):
            options["tokenizer"] = repr(options["tokenizer"])
        now = self._simulator.now()
        return JSONResponse({"stats": self._simulator.stats(), "options": options, "now": now})
