"""Send requests to a server, and reconnect streams that break."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from trimtab.errors import TrimtabError


class ServerUnreachable(TrimtabError):
    """The server did not answer, or a connection broke, for longer than the timeout."""


class ApiError(TrimtabError):
    """The server refused a request. The message says why and what to do."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None) -> None:
        self.status = status
        """The HTTP status."""
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        """The last word of the problem's `type`: `not-found`, `invalid-request`, …"""
        self.detail = str(problem.get("detail", f"the server answered {status}"))
        """What happened."""
        self.help = str(problem.get("help", ""))
        """What to do next."""
        self.errors: list[Mapping[str, str]] = problem.get("errors") or []
        """If the body was invalid: `field` and `detail` of each error."""
        self.retry_after = retry_after
        """Seconds after which to try again. None if the server does not say."""
        super().__init__(f"{self.detail}. {self.help}".strip())


def parse_api_error(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """Convert an error response to an exception."""
    try:
        problem: Any = json.loads(body)
    except ValueError:
        problem = {}
    header = headers.get("retry-after", "")
    wait = float(header) if header.isdigit() else None
    return ApiError(status, cast("Any", problem) if isinstance(problem, dict) else {}, wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """An event of a session."""

    kind: str
    """`message`, `message.delta`, `tool.started`, `context.edited`, `model_call.finished`,
    `turn.started`, `turn.finished`, …"""
    data: Mapping[str, Any]
    """The content. The OpenAPI document describes each kind."""
    id: str | None
    """The event's position: a client can ask for the events after it. None if it has none."""


KEEPALIVE_EVENT = StreamEvent(kind="keepalive", data={}, id=None)
"""Stands for a comment of the server, which shows that it is alive."""


async def parse_sse_events(byte_chunks: AsyncIterator[bytes]) -> AsyncGenerator[StreamEvent]:
    """Yield the events of a stream."""
    rest = b""
    async for chunk in byte_chunks:
        *frames, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for frame in frames:
            event = _parse_frame(frame)
            if event is not None:
                yield event


def _parse_frame(frame: bytes) -> StreamEvent | None:
    if frame.startswith(b":"):
        return KEEPALIVE_EVENT
    fields: dict[str, str] = {}
    for line in frame.decode().split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    if "data" not in fields:
        return None  # the pause before another try
    kind = fields.get("event", "message")
    return StreamEvent(kind=kind, data=json.loads(fields["data"]), id=fields.get("id"))


def decode_json_unchecked(value_type: type[T], data: Any) -> T:
    """Convert JSON to a value of this type. Unknown fields of a newer server are ignored."""
    return _decode_value(value_type, data)


def _decode_value(value_type: Any, data: Any) -> Any:
    if data is None:
        return None
    origin = get_origin(value_type)
    if origin in (Union, UnionType):
        return _decode_value(
            next(each for each in get_args(value_type) if each is not NoneType), data
        )
    if origin is list:
        return [_decode_value(get_args(value_type)[0], each) for each in data]
    if is_dataclass(value_type):
        hints = _field_types(value_type)
        arguments = {name: _decode_value(hints[name], data[name]) for name in hints if name in data}
        return cast("Any", value_type)(**arguments)
    return data


@cache
def _field_types(dataclass_type: Any) -> dict[str, Any]:
    hints = get_type_hints(dataclass_type)
    return {field.name: hints[field.name] for field in fields(dataclass_type)}


try:
    import httpx2
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the client needs httpx2: pip install 'trimtab[client]'", name="httpx2"
    ) from error

T = TypeVar("T")

STREAM_SILENCE_TIMEOUT_S = 60.0
"""Seconds without data after which a stream counts as broken. The server sends a keepalive every 15
seconds."""
FIRST_RETRY_DELAY_S = 0.1
MAX_RETRY_DELAY_S = 5.0
"""Seconds before the second attempt, and the maximum before any attempt."""
RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses for which a request is repeated."""


class HttpTransport:
    """The HTTP connection to one server."""

    def __init__(
        self, url: str, api_key: str | None, *, timeout: float, reconnect_timeout: float
    ) -> None:
        self.http = httpx2.AsyncClient(
            base_url=url,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            timeout=timeout,
            # Each stream has a connection for as long as it lasts.
            limits=httpx2.Limits(max_connections=None),
        )
        """The HTTP client."""
        self.reconnect_timeout = reconnect_timeout
        """Seconds for which a broken stream tries to reconnect."""

    async def close(self) -> None:
        await self.http.aclose()

    async def request_value(self, value_type: type[T], method: str, path: str, **options: Any) -> T:
        """Send a request, and return the answer as a value of this type."""
        return decode_json_unchecked(
            value_type, (await self.send_request(method, path, **options)).json()
        )

    async def send_request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send one request. Raises `ApiError` and `ServerUnreachable`."""
        try:
            answer = await self.http.request(method, path, **options)
        except httpx2.TransportError as error:
            raise _unreachable_error(error) from error
        if answer.is_error:
            raise parse_api_error(answer.status_code, answer.content, answer.headers)
        return answer

    async def iter_json_lines(self, path: str) -> AsyncGenerator[dict[str, Any]]:
        """Yield the lines of an answer while the server writes them, up to a line of kind `end`.
        Raises `ApiError`, and `ServerUnreachable` if that line is missing."""
        last: dict[str, Any] = {}
        try:
            async with self.http.stream("GET", path) as answer:
                if answer.is_error:
                    content = await answer.aread()
                    raise parse_api_error(answer.status_code, content, answer.headers)
                async for line in answer.aiter_lines():
                    last = json.loads(line)
                    yield last
        except httpx2.TransportError as error:
            raise _unreachable_error(error) from error
        if last.get("kind") != "end":
            raise ServerUnreachable("the server ended the answer before its last line")


class ReconnectingStream:
    """A stream of events without gaps or repeats, even if its connection breaks."""

    def __init__(
        self, transport: HttpTransport, method: str, path: str, *, body: Any = None
    ) -> None:
        self._wire = transport
        self._request = (method, path)
        self._body = body
        self.last_event_id: str | None = None
        """The id of the last event. A new connection continues after it."""
        self.disconnects = 0
        """How often the connection broke."""

    async def iter_events(self, final_kinds: Collection[str] = ()) -> AsyncGenerator[StreamEvent]:
        """Yield events until the server ends the stream after one of the `final_kinds`, or without
        end if there are none. Other turns may end before the awaited one."""
        clock = asyncio.get_running_loop().time
        failures = 0
        last_heard = -1.0
        while True:
            wait = 0.0
            is_final = False
            try:
                async with aclosing(self._once()) as events:
                    async for event in events:
                        if event.kind == "reconnect":
                            is_final = False
                            continue
                        failures, last_heard, self.last_event_id = (
                            0,
                            clock(),
                            event.id or self.last_event_id,
                        )
                        if event is not KEEPALIVE_EVENT:
                            is_final = event.kind in final_kinds
                            yield event
            except httpx2.TransportError as error:
                if self._is_lost(last_heard):
                    raise _unreachable_error(error) from error
            except ApiError as refusal:
                if self._is_lost(last_heard) or refusal.status not in RETRYABLE_STATUSES:
                    raise
                wait = min(refusal.retry_after or 0.0, MAX_RETRY_DELAY_S)
            else:
                if is_final:
                    return
                last_heard = clock() if last_heard < 0 else last_heard  # it was reached
                if self._is_lost(last_heard):
                    raise ServerUnreachable("the server ended the stream before its last event")
            self.disconnects += 1
            failures += 1
            pause = min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2 ** min(failures - 1, 8))
            await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))  # noqa: S311 - jitter, nothing secret

    def _is_lost(self, heard: float) -> bool:
        """Return whether there was no data for longer than the timeout, or never."""
        silent = asyncio.get_running_loop().time() - heard
        return heard < 0 or silent > self._wire.reconnect_timeout

    async def _once(self) -> AsyncGenerator[StreamEvent]:
        http = self._wire.http
        headers = {"Accept": "text/event-stream"}
        if self.last_event_id is not None:
            headers["Last-Event-ID"] = self.last_event_id
        timeout = httpx2.Timeout(http.timeout.connect, read=STREAM_SILENCE_TIMEOUT_S)
        open_stream = http.stream(*self._request, json=self._body, headers=headers, timeout=timeout)
        async with open_stream as answer:
            if answer.is_error:
                raise parse_api_error(answer.status_code, await answer.aread(), answer.headers)
            async with aclosing(parse_sse_events(answer.aiter_bytes())) as events:
                async for event in events:
                    yield event


def _unreachable_error(error: Exception) -> ServerUnreachable:
    return ServerUnreachable(f"the server cannot be reached: {str(error) or type(error).__name__}")
