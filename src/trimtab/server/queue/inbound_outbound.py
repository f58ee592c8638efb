"""What came in from outside, and what must go out.

Messages and replies as plain JSON values: what a queue's log is made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.log.message import Message, message_from_json, message_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRoute:
    """Where a reply goes."""

    channel: str
    """Who delivers it: `telegram`, `discord`, …"""
    address: Mapping[str, Any]
    """What that channel needs to find the receiver, in plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """Something said to an agent that waits for its turn."""

    session: str
    """The session's id in the store."""
    message: Message
    """What was said."""
    key: str
    """The sender's own: two with the same key in one session are the same."""
    at: float
    """When it came, in seconds since the epoch."""
    route: ReplyRoute | None = None
    """Where the reply goes; None where whoever asked reads it in the session."""
    number: int = 0
    """Given by the queue: ascending in the order of arrival."""
    request_id: str = ""
    """Of the HTTP request that brought it; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage:
    """A reply on its way out."""

    session: str
    """The session's id in the store."""
    seq: int
    """Where the reply stands in the log; 0 for a word that is not in it, such as an apology."""
    text: str
    """What is sent."""
    route: ReplyRoute
    """Where it goes."""
    key: str
    """The same for each attempt at it, and for no other; for platforms that know idempotency."""
    number: int = 0
    """Given by the queue: ascending in the order in which they were written."""
    attempts: int = 0
    """Deliveries that were begun before and of which nobody knows whether they arrived."""


QUEUE_RECORD_VERSION = 1
"""Of the stored shape. A change of shape raises it and teaches `checked` the one before."""

QueueRecord = Mapping[str, Any]


def encode_queue_record(record: QueueRecord) -> bytes:
    """A record as a line of JSON, without its end. Keys keep their order, as in a session's log."""
    whole = {"v": QUEUE_RECORD_VERSION, **record}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()


def check_queue_record_version(record: QueueRecord) -> QueueRecord:
    """A record that was read; one of a later release is refused."""
    if record.get("v") != QUEUE_RECORD_VERSION:
        raise ValueError(
            f"a record of the queue has format version {record.get('v')}; this release reads "
            f"{QUEUE_RECORD_VERSION}: upgrade trimtab to serve from this folder"
        )
    return record


def inbound_to_record(inbound: InboundMessage) -> QueueRecord:
    """A message that came in."""
    return {
        "kind": "letter",
        "number": inbound.number,
        "session": inbound.session,
        "key": inbound.key,
        "at": inbound.at,
        "message": message_to_json(inbound.message),
        "route": route_to_record(inbound.route) if inbound.route is not None else None,
        # Not in records of earlier releases, which do not look at it.
        **({"request_id": inbound.request_id} if inbound.request_id else {}),
    }


def inbound_from_record(record: QueueRecord) -> InboundMessage:
    """The inverse of `inbound_to_record`."""
    return InboundMessage(
        session=record["session"],
        message=message_from_json(record["message"]),
        key=record["key"],
        at=record["at"],
        request_id=record.get("request_id", ""),
        route=route_from_record(record["route"]) if record["route"] is not None else None,
        number=record["number"],
    )


def outbound_to_record(reply: OutboundMessage) -> QueueRecord:
    """A reply that must go out."""
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
    """The inverse of `outbound_to_record`."""
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
    """Where a reply goes."""
    return {"door": route.channel, "address": dict(route.address)}


def route_from_record(record: QueueRecord) -> ReplyRoute:
    """The inverse of `route_to_record`."""
    return ReplyRoute(channel=record["door"], address=record["address"])
