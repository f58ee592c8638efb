"""The frames in which AWS streams events: lengths, headers, payload, and checksums of both."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Self

from trimtab.testing.server.responses import SimulatedResponse

EVENT_STREAM = "application/vnd.amazon.eventstream"
_STRING_HEADER = b"\x07"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsStream(SimulatedResponse):
    """A stream of a response in AWS's frames."""

    frame_event: Callable[[Mapping[str, Any]], bytes]
    """How an event is written."""

    @classmethod
    def of(
        cls,
        response: SimulatedResponse,
        events: Iterable[Mapping[str, Any]],
        frame_event: Callable[[Mapping[str, Any]], bytes],
    ) -> Self:
        """Return a response with other events, framed."""
        values = {field.name: getattr(response, field.name) for field in fields(response)}
        values["events"] = events
        values["headers"] = {**response.headers, "content-type": EVENT_STREAM}
        return cls(**values, frame_event=frame_event)

    def stream_chunks(self) -> Iterable[bytes]:
        return map(self.frame_event, islice(self.events or (), self.cut))


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode one message of an event stream."""
    block = b"".join(_encode_header(name, value) for name, value in headers.items())
    total = 12 + len(block) + len(payload) + 4
    lengths = struct.pack(">II", total, len(block))
    message = lengths + _checksum(lengths) + block + payload
    return message + _checksum(message)


def encode_event(event_type: str, payload: bytes) -> bytes:
    """Encode an event of a type, with JSON inside."""
    headers = {
        ":event-type": event_type,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return encode_frame(headers, payload)


def encode_exception(exception_type: str, payload: bytes) -> bytes:
    """Encode an error that ends a stream."""
    headers = {
        ":exception-type": exception_type,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return encode_frame(headers, payload)


def _encode_header(name: str, value: str) -> bytes:
    key = name.encode()
    text = value.encode()
    return bytes([len(key)]) + key + _STRING_HEADER + struct.pack(">H", len(text)) + text


def _checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))
