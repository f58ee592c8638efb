"""A server of canned answers on a real socket, strict about what it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int = 200
    """Of the response."""
    body: Any = None
    """JSON where it is no text."""
    kind: str = ""
    """The content type; empty for JSON, or for events if there are any."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further ones."""
    events: tuple[str | bytes, ...] = ()
    """Sent one by one, as chunks of a stream."""
    whole: bool = True
    """False breaks the connection off behind the last event, without the end of the body."""
    mute: bool = False
    """True sends nothing at all, not even a status."""
    hang: bool = False
    """True sends nothing further until the client has gone."""


@dataclass(slots=True)
class Server:
    url: str
    answers: list[Answer]
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What was asked: path, headers and body."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each request."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client that was left hanging has closed its connection."""


def sse(*events: Mapping[str, Any], named: bool = True, done: bool = False) -> tuple[str, ...]:
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    return (*lines, "data: [DONE]\n\n") if done else tuple(lines)


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncGenerator[Server]:
    server = Server("", list(answers))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(server, reader, writer):
                pass
        except ConnectionError:
            server.gone.set()
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server


async def _exchange(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """One request and its answer; False where the connection ends with it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return False
    method, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (h.partition(":") for h in head[1:])
    }
    body = await reader.readexactly(int(headers["content-length"]))
    assert method == "POST"
    assert headers["content-type"] == "application/json"
    server.requests.append({"path": path, "headers": headers, "body": json.loads(body)})
    server.arrived.set()
    # A request that nobody has an answer for was sent once too often.
    answer = server.answers.pop(0) if server.answers else Answer(status=599, body="not expected")
    if not answer.mute:
        await _answer(writer, answer)
    if answer.hang:
        await reader.read()
        server.gone.set()
    return answer.whole and not answer.hang


async def _answer(writer: asyncio.StreamWriter, answer: Answer) -> None:
    stream = bool(answer.events) or answer.hang
    body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
    raw_body = body.encode()
    headers = {
        "content-type": answer.kind or ("text/event-stream" if stream else "application/json"),
        **({"transfer-encoding": "chunked"} if stream else {"content-length": str(len(raw_body))}),
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} X", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    if not stream:
        writer.write(raw_body)
    for event in answer.events:
        chunk = event.encode() if isinstance(event, str) else event
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
    if stream and answer.whole and not answer.hang:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
