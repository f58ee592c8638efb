"""The route class of all routes: checks that run before FastAPI parses a request.

FastAPI reads a body before it runs a dependency, so authentication cannot be a dependency. This
class checks the key, the role and the rate, then the names of query parameters. Then it reads the
body within a time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from trimtab_serve.agent.agent import Agent
from trimtab_serve.api_keys.api_key import KeyRole
from trimtab_serve.channels.http.api_caller import LOCAL_CALLER, ApiCaller
from trimtab_serve.channels.http.authentication import check_role
from trimtab_serve.channels.http.middleware import decode_request_headers, get_client_host
from trimtab_serve.channels.http.problems import (
    HttpProblem,
    build_agent_not_found_problem,
    build_session_not_found_problem,
)
from trimtab_serve.channels.http.request_bodies import RequestBody, parse_request_body
from trimtab_serve.channels.http.server_state import HttpServerState
from trimtab_serve.channels.http.sse import accepts_event_stream
from trimtab_serve.client.types import encode_json_bytes
from trimtab_serve.queue.address import SessionAddress, is_valid_name
from trimtab_serve.service.service import AgentService

BODY_TIMEOUT_S = 30.0
"""Seconds that a body may take to arrive."""
MAX_QUERY_FIELDS = 20
REQUIRED_ROLE_KEY = "x-required-role"
"""The key in the OpenAPI document for the role that an operation needs."""

RouteHandler = Callable[[Request], Coroutine[Any, Any, Response]]


class JsonResponse(JSONResponse):
    """JSON in the format of this API."""

    def render(self, content: Any) -> bytes:
        return encode_json_bytes(content)


class ApiRequest(Request):
    """A request with a known caller: the parameter `request` of a path function."""

    raw_body: bytes = b""
    """The body as received, read before FastAPI asks for it."""
    parsed_body: RequestBody | None = None
    """The body, validated as JSON. FastAPI would apply strict types to Python values instead."""

    @property
    def server_state(self) -> HttpServerState:
        """The state of the server."""
        return self.app.state.http_server_state

    @property
    def service(self) -> AgentService:
        """Agents, sessions and queue."""
        return self.server_state.service

    @property
    def caller(self) -> ApiCaller:
        """The caller."""
        return self.scope["trimtab_caller"]

    @property
    def wants_event_stream(self) -> bool:
        """Whether the caller wants events instead of JSON."""
        return accepts_event_stream(self.scope)

    @property
    def wants_plain_text(self) -> bool:
        """Whether the caller wants plain text instead of JSON."""
        return "text/plain" in self.headers.get("accept", "")

    async def body(self) -> bytes:
        """Return the body, which has arrived."""
        return self.raw_body

    async def json(self) -> Any:
        """Return the body as an instance of the route's model."""
        return self.parsed_body

    def require_agent(self, agent: str) -> Agent:
        """Return the agent, if this caller may use it."""
        allowed_agent = self.service.agents.get(agent) if self.caller.may_use(agent) else None
        if allowed_agent is None:
            has_keys = self.server_state.api_keys is not None
            raise build_agent_not_found_problem(agent, has_keys=has_keys)
        return allowed_agent

    def session_address(self, agent: str, session: str) -> SessionAddress:
        """Return the address of a session of this caller's tenant.

        The tenant is always that of the key, so a caller cannot name a session of another tenant.
        """
        self.require_agent(agent)
        if not is_valid_name(session):
            raise build_session_not_found_problem(agent, session)
        return SessionAddress(tenant=self.caller.tenant, agent=agent, name=session)

    async def require_session_id(self, agent: str, session: str) -> str:
        """Return the id of a session. Raises `HttpProblem` if it does not exist."""
        address = self.session_address(agent, session)
        if not await self.service.store.position(str(address)):
            raise build_session_not_found_problem(agent, session)
        return str(address)


class ApiRoute(APIRoute):
    """A route with a required role. Without a role it is public."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.description = " ".join(self.description.split())
        self.summary = self.description.partition(". ")[0].rstrip(".").partition(";")[0]

    @property
    def required_role(self) -> KeyRole | None:
        """The role that the caller's key needs. None if no key is needed."""
        return (self.openapi_extra or {}).get(REQUIRED_ROLE_KEY)

    @property
    def counts_for_tenant(self) -> bool:
        """Whether a request counts among those of its tenant. Metrics do not: a scraper must be
        answered while its tenant holds its whole share."""
        return self.required_role not in (None, "metrics")

    @property
    def allowed_methods(self) -> list[str]:
        """Its methods, in a stable order."""
        return sorted(self.methods or ())

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the caller, then the method. This is called for any method at this path."""
        server_state: HttpServerState = scope["app"].state.http_server_state
        await admit_caller(scope, server_state, self.required_role)
        is_head = scope["method"] == "HEAD" and self.required_role is None
        method = "GET" if is_head else scope["method"]
        if method not in self.allowed_methods:
            raise _method_not_allowed_problem(scope, self.path)
        if not self.counts_for_tenant:
            await self.app(scope, receive, send)
            return
        with server_state.tenant_requests.hold_request(scope["trimtab_caller"].tenant):
            await self.app(scope, receive, send)

    def get_route_handler(self) -> RouteHandler:
        """Return FastAPI's handler, with our checks before it."""
        handle = super().get_route_handler()
        query_names = [parameter.alias for parameter in self.dependant.query_params]
        body_model = self.body_field.field_info.annotation if self.body_field else None

        async def handle_checked(request: Request) -> Response:
            api_request = ApiRequest(request.scope, request.receive)
            _check_query_names(query_names, api_request.scope["query_string"])
            api_request.raw_body = await _read_raw_body(api_request.receive)
            if body_model is not None:
                _check_content_type(api_request)
                api_request.parsed_body = parse_request_body(
                    cast("type[RequestBody]", body_model), api_request.raw_body
                )
            elif api_request.raw_body:
                raise HttpProblem(
                    "invalid-request", f"this operation takes no body with {api_request.method}"
                )
            _name_session_in_log(api_request)
            if api_request.method != "GET" or not self.counts_for_tenant:
                return await handle(api_request)
            async with api_request.server_state.tenant_requests.hold_read(
                api_request.caller.tenant
            ):
                return await handle(api_request)

        return handle_checked


def create_api_router(tag: str) -> APIRouter:
    """Create a router with these checks. Operation ids are the names of the functions."""
    return APIRouter(
        route_class=ApiRoute,
        default_response_class=JsonResponse,
        tags=[tag],
        generate_unique_id_function=lambda route: route.name,
    )


def requires(role: KeyRole) -> dict[str, Any]:
    """Return the `openapi_extra` of a route for callers with this role."""
    return {REQUIRED_ROLE_KEY: role}


PUBLIC: dict[str, Any] = {"security": []}
"""The `openapi_extra` of a route that needs no key."""


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route: the errors that not all routes have.

    A route with a name in its path also has 404.
    """
    return {status: {} for status in statuses}


async def admit_caller(scope: Scope, server_state: HttpServerState, role: KeyRole | None) -> None:
    """Find the caller, and raise `HttpProblem` if the request is not allowed. The log line names
    them."""
    scope["trimtab_caller"] = LOCAL_CALLER
    if role is None:
        return
    headers = decode_request_headers(scope)
    authentication = server_state.authentication
    caller = await authentication.authenticate(headers, get_client_host(scope))
    scope["trimtab_caller"] = caller
    scope["trimtab"] = {"key": caller.name, "tenant": caller.tenant}
    if server_state.api_keys is None and role != "metrics":
        # Without keys, all callers share one limit, and a metrics scraper must not wait for the
        # others.
        authentication.check_pace(caller.name)
    check_role(caller, role)


def _method_not_allowed_problem(scope: Scope, path: str) -> HttpProblem:
    routes = [r for r in scope["app"].routes if isinstance(r, ApiRoute) and r.path == path]
    methods = ", ".join(method for route in routes for method in route.allowed_methods)
    detail = f"{scope['method']} is not allowed for this path; use {methods}"
    return HttpProblem("method-not-allowed", detail, headers={"Allow": methods})


def _check_query_names(known_names: list[str], raw_query: bytes) -> None:
    """Refuse unknown and duplicate parameters, which FastAPI would ignore."""
    if not raw_query:
        return
    try:
        pairs = parse_qsl(
            raw_query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except ValueError:
        raise HttpProblem("invalid-request", "the query string is invalid") from None
    names: set[str] = set()
    for name, _ in pairs:
        if name not in known_names:
            there = f"; valid: {', '.join(known_names)}" if known_names else ""
            raise HttpProblem("invalid-request", f"unknown parameter {name!r}{there}")
        if name in names:
            raise HttpProblem("invalid-request", f"the parameter {name} occurs twice; send it once")
        names.add(name)


async def _read_raw_body(receive: Receive) -> bytes:
    """Return the whole body. `RequestSafetyMiddleware` enforces the size limit."""
    raw_body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpProblem(
                        "bad-request", "the connection was closed before the body was complete"
                    )
                raw_body += message.get("body", b"")
                if not message.get("more_body"):
                    return bytes(raw_body)
    except TimeoutError:
        raise HttpProblem(
            "request-timeout",
            f"only {len(raw_body):,} bytes of the body arrived in {BODY_TIMEOUT_S:g} s",
        ) from None


def _check_content_type(request: ApiRequest) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.raw_body and kind != "application/json":
        detail = f"the body is {kind}" if kind else "the request has no Content-Type"
        raise HttpProblem("unsupported-media-type", detail)


def _name_session_in_log(request: ApiRequest) -> None:
    names = [request.path_params.get(part, "") for part in ("agent", "session")]
    if all(map(is_valid_name, names)):  # an invalid name must not get into the log
        log_fields: dict[str, str] = request.scope.setdefault("trimtab", {})
        log_fields["session"] = "/".join([request.caller.tenant, *names])
