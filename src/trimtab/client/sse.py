"""Server-sent events, read as they come."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """Something that happened in a session."""

    kind: str
    """`message`, `message.delta`, `tool.started`, `tool.result`, `context.edited`, `usage`,
    `turn.started`, `turn.finished`, …"""
    data: Mapping[str, Any]
    """What it says; the OpenAPI document describes each kind."""
    id: str | None
    """Its place: what follows it is asked for with it. None where it moves nobody's."""


KEEPALIVE_EVENT = StreamEvent(kind="keepalive", data={}, id=None)
"""What stands for a comment: the server is there and has nothing to tell."""


async def parse_sse_events(byte_chunks: AsyncIterator[bytes]) -> AsyncGenerator[StreamEvent]:
    """The events of a stream. Lines end as the format says: a text may hold all other ends."""
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
