"""The application: what is asked finds its operation, what is answered its form."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
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

from trimtab.gateways.http.answers import dumped
from trimtab.gateways.http.asking import Asked, Operation, Query, Reply
from trimtab.gateways.http.asking import Offer as Offer
from trimtab.gateways.http.bodies import checked
from trimtab.gateways.http.guard import Guard, headers_of, send_problem
from trimtab.gateways.http.keys import LOCAL, Caller
from trimtab.gateways.http.pace import Pace
from trimtab.gateways.http.problems import Problem
from trimtab.gateways.http.routes import OPERATIONS
from trimtab.gateways.http.streams import Stream, wants_stream
from trimtab.worker.naming import is_name

ARRIVES = 30.0
"""Seconds that a body may take to arrive."""
BEARER = "bearer "
_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"],
    "allow_headers": ["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
    "expose_headers": ["Location", "Retry-After"],
}


def make_app(offer: Offer) -> Starlette:
    """The application of what is offered."""
    pace = Pace(offer.serve.rate)
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    routes = [Route(path, Endpoint(offer, pace, methods)) for path, methods in paths.items()]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        if offer.keys is not None:
            offer.keys.warn()
        yield
        await offer.close()
        await offer.hubs.close()

    middleware = [Middleware(Guard, offer=offer)]
    if offer.serve.origins:
        origins = list(offer.serve.origins)
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, **_CORS))
    app = Starlette(
        routes=[*routes, *offer.doors],
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={HTTPException: _foreign},
    )
    app.router.redirect_slashes = False
    app.router.default = Endpoint(offer, pace, {})
    return app


class Endpoint:
    """All operations at one address; with none, what is said about an address without any."""

    def __init__(self, offer: Offer, pace: Pace, methods: Mapping[str, Operation]) -> None:
        self._offer = offer
        self._pace = pace
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_other(scope, send)
            return
        headers = headers_of(scope)
        public = any(operation.public for operation in self._methods.values())
        caller = LOCAL if public else self._caller(headers)
        scope["trimtab"] = {"key": caller.name, "tenant": caller.tenant}
        if not public:
            self._refuse_scope(caller)
        operation = self._operation(scope)
        if not public and (wait := self._pace.wait(caller.name)):
            seconds = math.ceil(wait)
            limit = self._offer.serve.rate
            raise Problem(
                "too-many",
                f"the key {caller.name} may make {limit:,} requests in a minute; come again in "
                f"{seconds} s",
                headers={"Retry-After": str(seconds)},
            )
        asked = Asked(
            offer=self._offer,
            caller=caller,
            path=scope.get("path_params", {}),
            query=_query(operation.query, scope["query_string"]),
            body=await _body(operation, headers, receive),
            stream=operation.only_streams or (operation.streams and wants_stream(scope)),
            plain=bool(operation.text) and "text/plain" in headers.get("accept", ""),
            headers=headers,
        )
        named = [asked.path.get(part, "") for part in ("agent", "session")]
        if all(map(is_name, named)):  # what is no name must not write the log's lines
            scope["trimtab"]["session"] = "/".join([caller.tenant, *named])
        reply = await operation.run(asked)
        if isinstance(reply, Stream):
            await reply.send([], receive, send)
        else:
            await _send(reply, send)

    def _caller(self, headers: Mapping[str, str]) -> Caller:
        if self._offer.keys is None:
            return LOCAL
        given = headers.get("authorization", "")
        known = given[: len(BEARER)].lower() == BEARER
        caller = self._offer.keys.caller(given[len(BEARER) :].strip()) if known else None
        if caller is None:
            why = "the key is not known here" if known else "no key came with the request"
            raise Problem("no-key", why, headers={"WWW-Authenticate": "Bearer"})
        return caller

    def _refuse_scope(self, caller: Caller) -> None:
        """A key that lies where Prometheus reads it must not open anything but metrics."""
        own = next((operation.scope for operation in self._methods.values()), "sessions")
        if caller.scope in ("both", own):
            return
        if own == "metrics":
            why = "may not read metrics; one made with `trimtab keys create NAME --metrics` may"
        else:
            why = "reads /metrics and nothing else; one made without --metrics opens sessions"
        raise Problem("not-allowed", f"the key {caller.name} {why}")

    def _operation(self, scope: Scope) -> Operation:
        method: str = scope["method"]
        if not self._methods:
            raise Problem("not-found", f"there is nothing at {scope['path']}")
        found = self._methods.get("GET" if method == "HEAD" else method)
        if found is None or (method == "HEAD" and not found.public):
            allowed = ", ".join(self._methods)
            detail = f"{method} is not for this address; {allowed} is"
            raise Problem("wrong-method", detail, headers={"Allow": allowed})
        return found


async def _send(reply: Reply, send: Send) -> None:
    body = reply.raw if reply.raw is not None else b""
    if reply.value is not None:
        body = dumped(reply.value)
    named = dict(reply.headers)
    if body or reply.status != 204:
        named |= {"Content-Type": reply.media, "Content-Length": str(len(body))}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(operation: Operation, headers: Mapping[str, str], receive: Receive) -> Any:
    raw = await _read(receive)
    if operation.body is None:
        if raw:
            raise Problem("invalid", f"{operation.method} takes no body here; send none")
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        told = f"the body is {kind}" if kind else "the body does not say what it is"
        raise Problem("wrong-type", told)
    return checked(operation.body, raw)


async def _read(receive: Receive) -> bytes:
    """The whole body; `Guard` lets no more through than is allowed."""
    found = bytearray()
    try:
        async with asyncio.timeout(ARRIVES):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem("bad-request", "the connection was closed amid the body")
                found += message.get("body", b"")
                if not message.get("more_body"):
                    return bytes(found)
    except TimeoutError:
        raise Problem("too-slow", f"{len(found):,} bytes came in {ARRIVES:g} s") from None


def _query(known: tuple[Query, ...], raw: bytes) -> dict[str, Any]:
    try:
        given = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20
        )
    except ValueError:
        raise Problem("invalid", "what stands behind ? in the address cannot be read") from None
    names = {query.name: query for query in known}
    found: dict[str, Any] = {query.name: query.default for query in known}
    seen: set[str] = set()
    for name, text in given:
        if name not in names:
            there = f"; there is {', '.join(names)}" if names else ""
            raise Problem("invalid", f"there is no parameter {name!r} here{there}")
        if name in seen:
            raise Problem("invalid", f"{name} is there twice; give it once")
        seen.add(name)
        found[name] = _value(names[name], text)
    for query in known:
        if query.required and query.name not in seen:
            raise Problem("invalid", f"{query.name} is missing: {query.told}")
    return found


def _value(query: Query, text: str) -> Any:
    if not query.number:
        if not query.least <= len(text) <= query.most or "\0" in text:
            raise Problem(
                "invalid",
                f"{query.name} has {len(text)} characters; {query.least} to {query.most} without "
                "a NUL are fine",
            )
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Problem("invalid", f"{query.name} must be a whole number")
    number = int(text)
    if not query.least <= number <= query.most:
        raise Problem(
            "invalid", f"{query.name} is {number}; it may be {query.least} to {query.most}"
        )
    return number


async def _foreign(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself on the way to a door."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for no other
    kinds = {404: "not-found", 405: "wrong-method"}
    kind = kinds.get(error.status_code, "bad-request")
    allowed = dict(error.headers or {})
    problem = Problem(kind, f"{request.method} {request.url.path} cannot be done", headers=allowed)
    return Response(dumped(problem.body()), problem.kind.status, problem.headers)


async def _refuse_other(scope: Scope, send: Send) -> None:
    """No WebSockets."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1003})


__all__ = ["Offer", "make_app", "send_problem"]
