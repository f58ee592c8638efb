"""Read server-sent events as they arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any


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
    left = b""
    async for chunk in byte_chunks:
        *frames, left = (left + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for frame in frames:
            event = _parse_frame(frame)
            if event is not None:
                yield event


def _parse_frame(frame: bytes) -> StreamEvent | None:
    if frame.startswith(b":"):
        return KEEPALIVE_EVENT
    named: dict[str, str] = {}
    for line in frame.decode().split("\n"):
        name, _, value = line.partition(":")
        named[name] = value.removeprefix(" ")
    if "data" not in named:
        return None  # the pause before another try
    kind = named.get("event", "message")
    return StreamEvent(kind=kind, data=json.loads(named["data"]), id=named.get("id"))
