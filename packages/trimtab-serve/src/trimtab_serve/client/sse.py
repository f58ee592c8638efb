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
