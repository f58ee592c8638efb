"""Checks for every request: its size, its origin, and that no error leaks details."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.observe.request_ids import (
    REQUEST_ID_HEADER,
    accept_or_create_request_id,
    bind_request_id,
)
from trimtab.observe.trace_parents import (
    TRACEPARENT_HEADER,
    accept_traceparent,
    bind_traceparent,
)
from trimtab_serve.api_keys.requirement import is_loopback_host
from trimtab_serve.channels.http.problems import (
    PROBLEM_MEDIA_TYPE,
    HttpProblem,
    convert_error_to_problem,
)
from trimtab_serve.channels.http.server_state import HttpServerState
from trimtab_serve.client.types import encode_json_bytes
from trimtab_serve.metrics.labels import OTHER_LABEL
from trimtab_serve.metrics.recording import HTTP_METHODS, count_http_request

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Security headers of every response."""
_ENCODED_SECURITY_HEADERS = [
    (name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
]

PROBE_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
HTTP_SERVER_ERROR = 500
MAX_HEADER_BYTES = 65_536
"""Maximum size of all headers. The parser has the same limit, but not for headers that come at
once."""
SINGLE_HEADERS = frozenset(
    {b"authorization", b"content-type", b"idempotency-key", b"last-event-id", b"origin"}
)
"""Headers with a single value that affect a decision."""
"""The first status that means an error of the server."""

log = logging.getLogger("trimtab.http")
anonymous_log = logging.getLogger("trimtab.http.anonymous")
"""Logs requests without a valid key.

Anyone can send as many of these as they like, so `trimtab serve` writes a few lines a minute and
counts the rest.
"""


class RequestSafetyMiddleware:
    """The outermost middleware."""

    def __init__(self, app: ASGIApp, *, server_state: HttpServerState) -> None:
        self._app = app
        self._server_state = server_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = decode_request_headers(scope)
        request_id = accept_or_create_request_id(headers.get(REQUEST_ID_HEADER.lower()))
        traceparent = accept_traceparent(headers.get(TRACEPARENT_HEADER))
        with bind_request_id(request_id), bind_traceparent(traceparent):
            await self._serve_request(scope, receive, send, request_id)

    async def _serve_request(
        self, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> None:
        start_time = time.monotonic()
        status = 0
        unread = _has_body(scope)
        own_headers = [
            *_ENCODED_SECURITY_HEADERS,
            (REQUEST_ID_HEADER.lower().encode(), request_id.encode()),
        ]

        async def receiving() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and bool(message.get("more_body"))
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"]]
                names = {name for name, _ in headers}  # a page may have its own policy
                headers += [(name, value) for name, value in own_headers if name not in names]
                message = {**message, "headers": headers}
            await send(message)

        try:
            _check_framing(scope)
            _check_headers(scope)
            self._check_origin(scope)
            await self._app(scope, self._limit_body_size(scope, receiving), sending)
        except Exception as error:  # noqa: BLE001 - nothing of a mistake of ours may leak out
            problem = convert_error_to_problem(error) or _log_fault(scope, error)
            if unread:
                # The rest of the body must not be parsed as the next request.
                problem.headers["Connection"] = "close"
            if not status:
                await send_problem_response(problem, sending)
        finally:
            _log_request(scope, status, time.monotonic() - start_time)

    def _limit_body_size(self, scope: Scope, receive: Receive) -> Receive:
        """Return `receive` with a size limit. A body that is too large is not read."""
        most = self._server_state.serve_config.max_body_bytes
        size = 0
        content_length = decode_request_headers(scope).get("content-length", "")
        if content_length.isascii() and content_length.isdigit() and int(content_length) > most:
            raise _body_too_large_problem(int(content_length), most)

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise _body_too_large_problem(size, most)
            return message

        return limited

    def _check_origin(self, scope: Scope) -> None:
        """Prevent a web page from calling this machine through its visitor's browser."""
        headers = decode_request_headers(scope)
        if self._server_state.api_keys is None and not is_loopback_host(
            _strip_port(headers.get("host", ""))
        ):
            raise HttpProblem(
                "forbidden",
                "without keys, this server answers only requests to localhost, not to "
                f"{headers.get('host', 'a request without a name')!r}",
            )
        origin = headers.get("origin")
        if (
            origin is None
            or origin in self._server_state.serve_config.allowed_origins
            or "*" in self._server_state.serve_config.allowed_origins
        ):
            return
        if origin.partition("://")[2] != headers.get("host"):
            raise HttpProblem(
                "forbidden",
                f"web pages of {origin} cannot call this API; see serve.allowed_origins",
            )


def decode_request_headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers by lower-case name. If one occurs twice, the last value counts."""
    raw_headers: Any = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}


def get_client_host(scope: Scope) -> str:
    """Return the address of the caller. Empty if it is unknown, as on a local socket."""
    client: Any = scope.get("client")
    host = str(client[0]).partition("%")[0] if client else ""
    try:
        ip_address(host)
    except ValueError:  # a local proxy may send anything, and it would be logged
        return ""
    return host


async def send_problem_response(problem: HttpProblem, send: Send) -> None:
    """Send a problem as the response."""
    body = encode_json_bytes(problem.to_document())
    headers_by_name = {
        "Content-Type": PROBLEM_MEDIA_TYPE,
        "Content-Length": str(len(body)),
        **problem.headers,
    }
    headers = [
        (name.lower().encode(), value.encode("latin-1")) for name, value in headers_by_name.items()
    ]
    await send({"type": "http.response.start", "status": problem.kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _check_framing(scope: Scope) -> None:
    """Refuse two lengths of one body.

    They can hide a request in another: a proxy may use one of them, and this server the other.
    """
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise HttpProblem(
            "bad-request",
            "the request has both Content-Length and Transfer-Encoding; send only one",
            headers={"Connection": "close"},
        )


def _check_headers(scope: Scope) -> None:
    """Refuse duplicate headers: a proxy may use the first value, and this server the last."""
    size = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    if size > MAX_HEADER_BYTES:
        raise HttpProblem(
            "bad-request", f"the headers have {size:,} bytes; the limit is {MAX_HEADER_BYTES:,}"
        )
    names = [name for name, _ in scope["headers"] if name in SINGLE_HEADERS]
    if len(names) != len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode()
        raise HttpProblem("bad-request", f"the header {twice} occurs twice; send it once")


def _has_body(scope: Scope) -> bool:
    headers = decode_request_headers(scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _strip_port(host: str) -> str:
    """Return a host without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


def _body_too_large_problem(size: int, max_bytes: int) -> HttpProblem:
    return HttpProblem(
        "content-too-large", f"the body has {size:,} bytes or more; the limit is {max_bytes:,}"
    )


def _log_fault(scope: Scope, error: Exception) -> HttpProblem:
    name = secrets.token_hex(8)
    log.error(
        "internal error %s in %s %s",
        name,
        _known_method(scope),
        _route_pattern(scope),
        exc_info=error,
    )
    return HttpProblem(
        "internal-error", "the server failed; the request was not the cause", instance=name
    )


def _route_pattern(scope: Scope) -> str:
    """Return the route pattern. An unknown path is not logged, because it may contain anything."""
    return getattr(scope.get("route"), "path", "-")


def _known_method(scope: Scope) -> str:
    """Return the method. An unknown one is not logged, because it may contain anything."""
    method: str = scope["method"]
    return method if method in HTTP_METHODS else OTHER_LABEL


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    who: dict[str, str] = scope.get("trimtab", {})
    extra = {"event": "request", "status": status, "duration_ms": round(seconds * 1000, 1), **who}
    path = _route_pattern(scope)
    count_http_request(scope["method"], "" if path == "-" else path, status, seconds)
    (log if "key" in who else anonymous_log).log(
        _request_log_level(path, status),
        "%s %s %s",
        _known_method(scope),
        path,
        status,
        extra=extra,
    )


def _request_log_level(path: str, status: int) -> int:
    """Return the log level. Probes come every few seconds, and the prober reports their
    failures."""
    is_failure = status >= HTTP_SERVER_ERROR
    if path in PROBE_PATHS:
        return logging.INFO if is_failure else logging.DEBUG
    return logging.WARNING if is_failure else logging.INFO
