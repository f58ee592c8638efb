"""The sidecar over HTTP, on the loopback interface or a Unix socket.

It speaks as little of HTTP/1.1 as its clients need, on the standard library, so that the door adds
no dependency to a program that reads whole conversations. Everything else is refused before a byte
of the body is read: no token, another `Host`, any `Origin`, chunks.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from trimtab.sidecar.call import Answer, Refusal, may_ask_to_redact, name_owner
from trimtab.sidecar.sidecar import Sidecar, refuse

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of a call. Providers take at most half of it."""
MAX_HEAD_BYTES = 16 * 1024
"""Bytes of the request line and the headers."""
MAX_CONNECTIONS = 64
"""Connections at a time."""
MAX_BUFFERED_BYTES = 4 * MAX_BODY_BYTES
"""Bytes of all calls that are being read or answered."""
HEAD_TIMEOUT_S = 10.0
"""How long a client may take for the head of a call, and to begin the first one."""
IDLE_TIMEOUT_S = 300.0
"""How long a connection stays open between two calls."""
MIN_BYTES_PER_S = 256 * 1024
"""How fast a body must come, after the time for its head."""
PATH_PREFIX = "/v1/"
READ_OPERATIONS = ("health",)
"""Operations for GET as well. All are for POST."""
_SINGLE_HEADERS = ("authorization", "content-length", "content-type", "host")

log = logging.getLogger("trimtab.sidecar")


class _Closed(Exception):
    """The client has nothing more to say."""


class _HttpRefusal(Refusal):
    """A request is refused, and its connection closed: its body was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The request line and the headers of a call."""

    method: str
    target: str
    headers: Mapping[str, str]
    is_last: bool
    """Whether the client closes the connection after the answer."""


class HttpServer:
    """The sidecar's HTTP server.

    Args:
        sidecar: What answers the calls.
        token: The token that each call must have.
    """

    def __init__(self, sidecar: Sidecar, *, token: str) -> None:
        self._sidecar, self._token = sidecar, token.encode()
        self._owner = name_owner(token)
        self._hosts: frozenset[str] = frozenset()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffered_bytes = 0

    async def listen(self, port: int) -> str:
        """Listen on a port of the loopback interface; 0 takes any. Return the address."""
        server = await asyncio.start_server(
            self._serve, host="127.0.0.1", port=port, limit=MAX_HEAD_BYTES
        )
        self._server = server
        number = server.sockets[0].getsockname()[1]
        self._hosts = frozenset(f"{name}:{number}" for name in ("127.0.0.1", "localhost"))
        return f"http://127.0.0.1:{number}"

    async def listen_on_socket(self, path: str) -> None:
        """Listen on a Unix socket, which must be in a folder that only its owner can open."""
        self._server = await asyncio.start_unix_server(self._serve, path, limit=MAX_HEAD_BYTES)
        os.chmod(path, 0o600)  # noqa: PTH101 - in a coroutine

    async def close(self) -> None:
        """Take no more calls, and end those that run."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            if len(self._tasks) > MAX_CONNECTIONS:
                await _send(writer, refuse(Refusal(503, "too many connections")), is_last=True)
                return
            wait_s = HEAD_TIMEOUT_S
            while await self._serve_call(reader, writer, wait_s):
                wait_s = IDLE_TIMEOUT_S
        except (_Closed, ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except Exception:
            log.exception("a connection failed")
        finally:
            if task is not None:
                self._tasks.discard(task)
            writer.close()
            with suppress(Exception):
                await writer.wait_closed()

    async def _serve_call(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float
    ) -> bool:
        """Answer one call that begins within this time. Return whether another may follow."""
        try:
            head = await _read_head(reader, wait_s)
            operation, size = self._check(head)
            self._buffered_bytes += size
            try:
                if head.headers.get("expect", "").lower() == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                text = await _read_body(reader, size)
                answer = await self._sidecar.answer(operation, text or "{}", owner=self._owner)
            finally:
                self._buffered_bytes -= size
        except _HttpRefusal as refusal:
            await _send(writer, refuse(refusal), is_last=True)
            return False
        await _send(writer, answer, is_last=head.is_last)
        return not head.is_last

    def _check(self, head: _Head) -> tuple[str, int]:
        """Return the operation and the size of the body of a request that may be answered."""
        headers = head.headers
        # Node's fetch sends sec-fetch-mode, and only browsers send sec-fetch-site.
        if "origin" in headers or "sec-fetch-site" in headers:
            raise _HttpRefusal(403, "requests of web pages are refused")
        if self._hosts and headers.get("host") not in self._hosts:
            raise _HttpRefusal(403, f"the Host must be one of {', '.join(sorted(self._hosts))}")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        if scheme.lower() != "bearer" or not is_known:
            raise _HttpRefusal(401, "pass the token of sidecar.json as Authorization: Bearer TOKEN")
        operation = head.target.removeprefix(PATH_PREFIX)
        if PATH_PREFIX + operation != head.target or operation not in self._sidecar.operations:
            raise _HttpRefusal(404, f"no path {head.target[:80]!r}")
        method = head.method
        if method != "POST" and (method != "GET" or operation not in READ_OPERATIONS):
            raise _HttpRefusal(405, f"{PATH_PREFIX}{operation} takes POST")
        if "transfer-encoding" in headers:
            raise _HttpRefusal(411, "send a Content-Length, and no chunks")
        length = headers.get("content-length", "" if method == "POST" else "0")
        if not (length.isascii() and length.isdecimal()):
            raise _HttpRefusal(411, "send a Content-Length")
        if len(length) > len(str(MAX_BODY_BYTES)) or int(length) > MAX_BODY_BYTES:
            raise _HttpRefusal(413, f"the body has {length[:20]} bytes; at most {MAX_BODY_BYTES:,}")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            raise _HttpRefusal(415, "the Content-Type must be application/json")
        if self._buffered_bytes + int(length) > MAX_BUFFERED_BYTES:
            raise _HttpRefusal(503, "too many calls at once")
        return operation, int(length)


async def _read_head(reader: asyncio.StreamReader, wait_s: float) -> _Head:
    """Read the request line and the headers."""
    async with asyncio.timeout(wait_s):
        first = await reader.read(1)
    if not first:
        raise _Closed
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            raw = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _HttpRefusal(431, f"the head is longer than {MAX_HEAD_BYTES:,} bytes") from None
    except TimeoutError:
        raise _HttpRefusal(408, f"the head took more than {HEAD_TIMEOUT_S:.0f} s") from None
    request_line, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    words = request_line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise _HttpRefusal(400, "not a request of HTTP/1.1")
    headers = _parse_headers(lines)
    closes = headers.get("connection", "").lower() == "close" or words[2] == "HTTP/1.0"
    return _Head(method=words[0], target=words[1], headers=headers, is_last=closes)


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, mark, text = line.partition(":")
        key = name.lower()
        if not mark or not name or name != name.strip() or "\n" in line or "\r" in line:
            raise _HttpRefusal(400, "a header is invalid")
        if key in headers and key in _SINGLE_HEADERS:
            raise _HttpRefusal(400, f"two headers are called {key}")
        headers[key] = text.strip(" \t")
    return headers


async def _read_body(reader: asyncio.StreamReader, size: int) -> str:
    """Read a body as text."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S + size / MIN_BYTES_PER_S):
            raw = await reader.readexactly(size)
    except TimeoutError:
        raise _HttpRefusal(408, "the body came too slowly") from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        is_blocked = may_ask_to_redact(raw.decode(errors="replace"))
        reason = f"the body is not UTF-8: {error.reason}"
        raise _HttpRefusal(400, reason, is_blocked=is_blocked) from None


async def _send(writer: asyncio.StreamWriter, answer: Answer, *, is_last: bool) -> None:
    body = answer.write().encode()
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        "Content-Type: application/json\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: {'close' if is_last else 'keep-alive'}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    async with asyncio.timeout(HEAD_TIMEOUT_S + len(body) / MIN_BYTES_PER_S):
        await writer.drain()
