"""Incoming messages and outgoing replies, and their JSON form in a queue's records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.engine.log.message import Message, message_from_json, message_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRoute:
    """The destination of a reply."""

    channel: str
    """The channel that delivers it: `telegram`, `discord`, …"""
    address: Mapping[str, Any]
    """What the channel needs to find the receiver, as plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """A message to an agent that waits for its turn."""

    session: str
    """Id of the session in the store."""
    message: Message
    """The message itself."""
    key: str
    """The sender's key. Two messages with the same key in one session are the same message."""
    at: float
    """When it arrived, in seconds since the epoch."""
    route: ReplyRoute | None = None
    """The destination of the reply. None if the caller reads it in the session."""
    number: int = 0
    """Set by the queue, ascending in the order of arrival."""
    request_id: str = ""
    """Id of the HTTP request that sent it. Empty if there is none."""
    traceparent: str = ""
    """The trace that its turn continues. Empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage:
    """A reply to send."""

    session: str
    """Id of the session in the store."""
    seq: int
    """Log position of the reply. 0 for a text that is not in the log, such as an apology."""
    text: str
    """The text to send."""
    route: ReplyRoute
    """The destination."""
    key: str
    """The same for each attempt, and unique. Platforms with idempotency use it."""
    number: int = 0
    """Set by the queue, ascending in the order of writing."""
    attempts: int = 0
    """Number of earlier deliveries whose outcome is unknown."""


QUEUE_RECORD_VERSION = 1
"""Version of the stored format. If a later release changes it, `check_queue_record_version` must
read the old one."""

QueueRecord = Mapping[str, Any]


def encode_queue_record(record: QueueRecord) -> bytes:
    """Return a record as a line of JSON without a newline. Keys keep their order."""
    whole = {"v": QUEUE_RECORD_VERSION, **record}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()


def check_queue_record_version(record: QueueRecord) -> QueueRecord:
    """Return the record. Raises `ValueError` if its version is unknown."""
    if record.get("v") != QUEUE_RECORD_VERSION:
        raise ValueError(
            f"unknown queue record version {record.get('v')}: this release reads "
            f"{QUEUE_RECORD_VERSION}; upgrade trimtab to serve from this folder"
        )
    return record


def inbound_to_record(inbound: InboundMessage) -> QueueRecord:
    """Return the record of an incoming message."""
    return {
        "number": inbound.number,
        "session": inbound.session,
        "key": inbound.key,
        "at": inbound.at,
        "message": message_to_json(inbound.message),
        "route": route_to_record(inbound.route) if inbound.route is not None else None,
        "request_id": inbound.request_id,
        "traceparent": inbound.traceparent,
    }


def inbound_from_record(record: QueueRecord) -> InboundMessage:
    """Read what `inbound_to_record` returned."""
    return InboundMessage(
        session=record["session"],
        message=message_from_json(record["message"]),
        key=record["key"],
        at=record["at"],
        request_id=record["request_id"],
        traceparent=record["traceparent"],
        route=route_from_record(record["route"]) if record["route"] is not None else None,
        number=record["number"],
    )


def outbound_to_record(reply: OutboundMessage) -> QueueRecord:
    """Return the record of an outgoing reply."""
    return {
        "number": reply.number,
        "session": reply.session,
        "seq": reply.seq,
        "key": reply.key,
        "attempts": reply.attempts,
        "text": reply.text,
        "route": route_to_record(reply.route),
    }


def outbound_from_record(record: QueueRecord) -> OutboundMessage:
    """Read what `outbound_to_record` returned."""
    return OutboundMessage(
        session=record["session"],
        seq=record["seq"],
        text=record["text"],
        route=route_from_record(record["route"]),
        key=record["key"],
        number=record["number"],
        attempts=record["attempts"],
    )


def route_to_record(route: ReplyRoute) -> QueueRecord:
    """Return the record of a destination."""
    return {"channel": route.channel, "address": dict(route.address)}


def route_from_record(record: QueueRecord) -> ReplyRoute:
    """Read what `route_to_record` returned."""
    return ReplyRoute(channel=record["channel"], address=record["address"])
