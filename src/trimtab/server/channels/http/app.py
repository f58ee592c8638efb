"""The application: what is asked finds its operation, what is answered its form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trimtab.http_api_response_types import encode_json_bytes
from trimtab.observe.request_ids import REQUEST_ID_HEADER
from trimtab.server.channels.http.api_keys import LOCAL_CALLER, KeyRole
from trimtab.server.channels.http.authentication import CallerAuthentication, check_role
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.channels.http.request_bodies import parse_request_body
from trimtab.server.channels.http.request_context_and_operations import (
    ApiOperation,
    EndpointResponse,
    QueryParameter,
    RequestContext,
)
from trimtab.server.channels.http.request_context_and_operations import (
    HttpServerState as HttpServerState,
)
from trimtab.server.channels.http.routes import API_OPERATIONS
from trimtab.server.channels.http.size_origin_and_header_middleware import (
    RequestSafetyMiddleware,
    decode_request_headers,
    get_client_host,
    send_problem_response,
)
from trimtab.server.channels.http.sse import EventStreamResponse, accepts_event_stream
from trimtab.server.tenant_agent_session_ids import is_valid_name

BODY_TIMEOUT_S = 30.0
"""Seconds that a body may take to arrive."""
_CORS_OPTIONS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"],
    "allow_headers": [
        *("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", REQUEST_ID_HEADER)
    ],
    "expose_headers": ["Location", "Retry-After", REQUEST_ID_HEADER],
}


def create_http_app(server_state: HttpServerState) -> Starlette:
    """The application of what is offered."""
    authentication = CallerAuthentication(
        server_state.key_file, server_state.serve_config.requests_per_minute
    )
    paths: dict[str, dict[str, ApiOperation]] = {}
    for operation in API_OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    routes = [
        Route(path, ApiPathEndpoint(server_state, authentication, methods))
        for path, methods in paths.items()
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        if server_state.key_file is not None:
            server_state.key_file.log_narrowed_keys()
        yield
        await server_state.close()
        await server_state.hubs.close()

    middleware = [Middleware(RequestSafetyMiddleware, server_state=server_state)]
    if server_state.serve_config.allowed_origins:
        origins = list(server_state.serve_config.allowed_origins)
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, **_CORS_OPTIONS))
    app = Starlette(
        routes=[*routes, *server_state.channel_routes],
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={HTTPException: _starlette_error_response},
    )
    app.router.redirect_slashes = False
    app.router.default = ApiPathEndpoint(server_state, authentication, {})
    return app


class ApiPathEndpoint:
    """All operations at one address; with none, what is said about an address without any."""

    def __init__(
        self,
        server_state: HttpServerState,
        authentication: CallerAuthentication,
        operations_by_method: Mapping[str, ApiOperation],
    ) -> None:
        self._server_state = server_state
        self._authentication = authentication
        self._operations_by_method = operations_by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_websocket(scope, send)
            return
        headers = decode_request_headers(scope)
        public = any(operation.is_public for operation in self._operations_by_method.values())
        caller = LOCAL_CALLER
        if not public:
            caller = self._authentication.authenticate(headers, get_client_host(scope))
            scope["trimtab"] = {"key": caller.name, "tenant": caller.tenant}
            self._authentication.check_pace(caller.name)
            check_role(caller, self._required_role(scope))
        operation = self._find_operation(scope)
        asked = RequestContext(
            server_state=self._server_state,
            caller=caller,
            path_params=scope.get("path_params", {}),
            query_params=_parse_query(operation.query_parameters, scope["query_string"]),
            body=await _read_request_body(operation, headers, receive),
            wants_stream=operation.always_streams
            or (operation.can_stream and accepts_event_stream(scope)),
            wants_plain_text=bool(operation.text_media_type)
            and "text/plain" in headers.get("accept", ""),
            headers=headers,
        )
        named = [asked.path_params.get(part, "") for part in ("agent", "session")]
        if all(map(is_valid_name, named)):  # what is no name must not write the log's lines
            scope.setdefault("trimtab", {})["session"] = "/".join([caller.tenant, *named])
        reply = await operation.handler(asked)
        if isinstance(reply, EventStreamResponse):
            await reply.send([], receive, send)
        else:
            await _send_response(reply, send)

    def _required_role(self, scope: Scope) -> KeyRole:
        """Of what is asked for; `read` where there is nothing, which a key for metrics may not
        learn."""
        operation = self._operations_by_method.get(scope["method"])
        return "read" if operation is None else operation.required_role

    def _find_operation(self, scope: Scope) -> ApiOperation:
        method: str = scope["method"]
        if not self._operations_by_method:
            raise HttpProblem("not-found", f"there is no path {scope['path']}")
        found = self._operations_by_method.get("GET" if method == "HEAD" else method)
        if found is None or (method == "HEAD" and not found.is_public):
            allowed = ", ".join(self._operations_by_method)
            detail = f"{method} is not allowed for this path; {allowed} is"
            raise HttpProblem("method-not-allowed", detail, headers={"Allow": allowed})
        return found


async def _send_response(response: EndpointResponse, send: Send) -> None:
    if response.chunks is not None:
        await _send_chunks(response, response.chunks, send)
        return
    body = response.raw_body if response.raw_body is not None else b""
    if response.value is not None:
        body = encode_json_bytes(response.value)
    named = dict(response.headers)
    if body or response.status != 204:
        named |= {"Content-Type": response.media_type, "Content-Length": str(len(body))}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_chunks(
    response: EndpointResponse, chunks: AsyncIterator[bytes], send: Send
) -> None:
    """Send what is made while it is sent; whoever reads slowly is waited for."""
    named = {**response.headers, "Content-Type": response.media_type}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    begin = {"type": "http.response.start", "status": response.status, "headers": headers}
    begun = False
    async for chunk in chunks:
        if not begun:
            await send(begin)  # an error before the first chunk still has a status of its own
            begun = True
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if not begun:
        await send(begin)
    await send({"type": "http.response.body", "body": b""})


async def _read_request_body(
    operation: ApiOperation, headers: Mapping[str, str], receive: Receive
) -> Any:
    raw = await _read_raw_body(receive)
    if operation.body_model is None:
        if raw:
            raise HttpProblem("invalid-request", f"{operation.method} takes no body here")
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        detail = f"the body is {kind}" if kind else "the request has no Content-Type"
        raise HttpProblem("unsupported-media-type", detail)
    return parse_request_body(operation.body_model, raw)


async def _read_raw_body(receive: Receive) -> bytes:
    """The whole body; `RequestSafetyMiddleware` lets no more through than is allowed."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpProblem("bad-request", "the connection was closed within the body")
                found += message.get("body", b"")
                if not message.get("more_body"):
                    return bytes(found)
    except TimeoutError:
        raise HttpProblem(
            "request-timeout", f"only {len(found):,} bytes arrived in {BODY_TIMEOUT_S:g} s"
        ) from None


def _parse_query(parameters: tuple[QueryParameter, ...], raw_query: bytes) -> dict[str, Any]:
    try:
        given = parse_qsl(
            raw_query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20
        )
    except ValueError:
        raise HttpProblem("invalid-request", "the query string cannot be read") from None
    names = {query.name: query for query in parameters}
    found: dict[str, Any] = {query.name: query.default for query in parameters}
    seen: set[str] = set()
    for name, text in given:
        if name not in names:
            there = f"; there is {', '.join(names)}" if names else ""
            raise HttpProblem("invalid-request", f"there is no parameter {name!r} here{there}")
        if name in seen:
            raise HttpProblem("invalid-request", f"{name} is there twice; send it once")
        seen.add(name)
        found[name] = _parse_query_value(names[name], text)
    for query in parameters:
        if query.required and query.name not in seen:
            raise HttpProblem("invalid-request", f"{query.name} is missing: {query.description}")
    return found


def _parse_query_value(parameter: QueryParameter, text: str) -> Any:
    if not parameter.is_integer:
        if not parameter.minimum <= len(text) <= parameter.maximum or "\0" in text:
            raise HttpProblem(
                "invalid-request",
                f"{parameter.name} has {len(text)} characters; {parameter.minimum} to "
                f"{parameter.maximum} without "
                "a NUL are fine",
            )
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise HttpProblem("invalid-request", f"{parameter.name} must be a whole number")
    number = int(text)
    if not parameter.minimum <= number <= parameter.maximum:
        raise HttpProblem(
            "invalid-request",
            f"{parameter.name} is {number}; it may be {parameter.minimum} to {parameter.maximum}",
        )
    return number


async def _starlette_error_response(request: Request, error: Exception) -> Response:
    """Convert what Starlette refuses by itself."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for no other
    kinds = {404: "not-found", 405: "method-not-allowed"}
    kind = kinds.get(error.status_code, "bad-request")
    allowed = dict(error.headers or {})
    problem = HttpProblem(
        kind, f"{request.method} {request.url.path} is not possible", headers=allowed
    )
    return Response(encode_json_bytes(problem.to_document()), problem.kind.status, problem.headers)


async def _refuse_websocket(scope: Scope, send: Send) -> None:
    """No WebSockets."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1003})


__all__ = ["HttpServerState", "create_http_app", "send_problem_response"]
