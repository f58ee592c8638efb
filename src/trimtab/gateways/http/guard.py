"""What holds for every request: its size, where it comes from, and that nothing leaks out."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.gateways.http.answers import dumped
from trimtab.gateways.http.asking import Offer
from trimtab.gateways.http.problems import MEDIA, Problem, problem_of
from trimtab.observe.serving import http_ended

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""What a browser is told with every answer."""
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

log = logging.getLogger("trimtab.http")


class Guard:
    """Around everything."""

    def __init__(self, app: ASGIApp, *, offer: Offer) -> None:
        self._app = app
        self._offer = offer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, unread = time.monotonic(), 0, _has_body(scope)

        async def receiving() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and bool(message.get("more_body"))
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_ENCODED]}
            await send(message)

        try:
            self._check_origin(scope)
            await self._app(scope, self._limited(scope, receiving), sending)
        except Exception as error:  # noqa: BLE001 - nothing of a mistake of ours may leak out
            problem = problem_of(error) or _fault(scope, error)
            if unread:
                # What is still to come of the body must not be taken for the next request.
                problem.headers["Connection"] = "close"
            if not status:
                await send_problem(problem, sending)
        finally:
            _note(scope, status, time.monotonic() - begun)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """The same, but a body that is too large is not even read."""
        most, seen = self._offer.serve.max_body, 0
        told = headers_of(scope).get("content-length", "")
        if told.isascii() and told.isdigit() and int(told) > most:
            raise _too_large(int(told), most)

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large(seen, most)
            return message

        return limited

    def _check_origin(self, scope: Scope) -> None:
        """A web page must not use the visitor's browser to reach what is on the same machine."""
        headers = headers_of(scope)
        if self._offer.keys is None and not is_local(_name_in(headers.get("host", ""))):
            raise Problem(
                "not-allowed",
                "without keys this server answers to localhost alone, and not to "
                f"{headers.get('host', 'a request without a name')!r}",
            )
        origin = headers.get("origin")
        if (
            origin is None
            or origin in self._offer.serve.origins
            or "*" in self._offer.serve.origins
        ):
            return
        if origin.partition("://")[2] != headers.get("host"):
            raise Problem("not-allowed", f"pages of {origin} may not ask here; see serve.origins")


def is_local(host: str) -> bool:
    """Whether a host's name means this machine alone."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def headers_of(scope: Scope) -> Mapping[str, str]:
    """Headers by lower-case name; of those that come twice, the last."""
    found: Any = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in found}


async def send_problem(problem: Problem, send: Send) -> None:
    """Answer with a problem."""
    body = dumped(problem.body())
    named = {"Content-Type": MEDIA, "Content-Length": str(len(body)), **problem.headers}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": problem.kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _has_body(scope: Scope) -> bool:
    headers = headers_of(scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _name_in(host: str) -> str:
    """A host without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


def _too_large(size: int, most: int) -> Problem:
    return Problem("too-large", f"the body has {size:,} bytes or more; {most:,} may be")


def _fault(scope: Scope, error: Exception) -> Problem:
    name = secrets.token_hex(8)
    log.error("fault %s in %s %s", name, scope["method"], _path(scope), exc_info=error)
    return Problem(
        "fault", "something went wrong here that has nothing to do with you", instance=name
    )


def _path(scope: Scope) -> str:
    """The pattern of an address; what is not known may hold anything."""
    return getattr(scope.get("route"), "path", "-")


def _note(scope: Scope, status: int, seconds: float) -> None:
    who: dict[str, str] = scope.get("trimtab", {})
    extra = {"event": "request", "status": status, "ms": round(seconds * 1000, 1), **who}
    path = _path(scope)
    http_ended(scope["method"], "" if path == "-" else path, status, seconds)
    log.info("%s %s %s", scope["method"], path, status, extra=extra)
