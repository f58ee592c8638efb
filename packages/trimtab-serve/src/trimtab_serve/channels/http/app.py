"""The application: its routes, their checks, and one format for every error."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, NoReturn

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from trimtab.observe.request_ids import REQUEST_ID_HEADER
from trimtab.observe.trace_parents import TRACEPARENT_HEADER
from trimtab_serve.channels.http.api_route import admit_caller
from trimtab_serve.channels.http.endpoints import (
    actions,
    documentation,
    health,
    inspection,
    messages,
    personal_data,
    sessions,
)
from trimtab_serve.channels.http.middleware import RequestSafetyMiddleware, send_problem_response
from trimtab_serve.channels.http.openapi import build_openapi_document
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.request_bodies import build_validation_problem
from trimtab_serve.channels.http.server_state import HttpServerState as HttpServerState
from trimtab_serve.client.types import encode_json_bytes

API_ROUTES = [
    route
    for module in (
        messages,
        sessions,
        inspection,
        actions,
        personal_data,
        health,
        documentation,
    )
    for route in module.router.routes
]
"""All routes of the API.

The application gets them directly, because an included router would be searched twice for each
request.
"""

_CORS_OPTIONS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"],
    "allow_headers": [
        *("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"),
        *(REQUEST_ID_HEADER, TRACEPARENT_HEADER),
    ],
    "expose_headers": ["Location", "Retry-After", REQUEST_ID_HEADER],
}


class HttpApi(FastAPI):
    """FastAPI with our OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """Return the document. It is built once."""
        if self.openapi_schema is None:
            self.openapi_schema = build_openapi_document(API_ROUTES)
        return self.openapi_schema

    @cached_property
    def openapi_json(self) -> bytes:
        """Return the document as JSON bytes."""
        return encode_json_bytes(self.openapi())


def create_http_app(server_state: HttpServerState) -> FastAPI:
    """Create the application."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await server_state.close()
        await server_state.hubs.close()

    middleware = [Middleware(RequestSafetyMiddleware, server_state=server_state)]
    if server_state.serve_config.allowed_origins:
        origins = list(server_state.serve_config.allowed_origins)
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, **_CORS_OPTIONS))
    app = HttpApi(
        routes=[*API_ROUTES, *server_state.channel_routes],
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={
            RequestValidationError: _raise_validation_problem,
            HTTPException: _raise_http_problem,
        },
        redirect_slashes=False,
        openapi_url=None,  # /openapi.json and /docs are our own routes
        # FastAPI's spans and logs contain paths, queries and errors. Those of `trimtab.observe` do
        # not.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.http_server_state = server_state
    app.router.default = UnknownPath(server_state)
    return app


class UnknownPath:
    """Answers requests to unknown paths, for callers with a key."""

    def __init__(self, server_state: HttpServerState) -> None:
        self._server_state = server_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        elif scope["type"] == "http":
            await admit_caller(scope, self._server_state, "read")
            raise HttpProblem("not-found", f"unknown path {scope['path']}")


async def _raise_validation_problem(request: Request, error: Exception) -> NoReturn:
    """Let `RequestSafetyMiddleware` answer, as for all other errors."""
    del request
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for no other
    raise build_validation_problem([(each["loc"][1:], each) for each in error.errors()]) from None


async def _raise_http_problem(request: Request, error: Exception) -> NoReturn:
    """Convert what Starlette or FastAPI refuses by itself."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for no other
    kinds = {404: "not-found", 405: "method-not-allowed"}
    raise HttpProblem(
        kinds.get(error.status_code, "bad-request"),
        f"{request.method} {request.url.path} is not supported",
        headers=dict(error.headers or {}),
    ) from None


__all__ = ["API_ROUTES", "HttpServerState", "create_http_app", "send_problem_response"]
