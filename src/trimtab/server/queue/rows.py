"""Messages as rows of a database: what is looked for stands beside a body of JSON."""

from __future__ import annotations

import json
from typing import Any

from trimtab.server.queue.inbound_outbound import (
    InboundMessage,
    OutboundMessage,
    check_queue_record_version,
    encode_queue_record,
    inbound_from_record,
    inbound_to_record,
    outbound_from_record,
    outbound_to_record,
)


def encode_inbound_body(inbound: InboundMessage) -> str:
    """What a message says."""
    return encode_queue_record(inbound_to_record(inbound)).decode()


def inbound_from_row(row: tuple[Any, ...]) -> InboundMessage:
    """The message whose row it was: number, body."""
    number, body = row
    return inbound_from_record({**check_queue_record_version(json.loads(body)), "number": number})


def encode_outbound_body(reply: OutboundMessage) -> str:
    """What a reply says."""
    return encode_queue_record(outbound_to_record(reply)).decode()


def outbound_from_row(row: tuple[Any, ...]) -> OutboundMessage:
    """The reply whose row it was: number, body, attempts."""
    number, body, attempts = row
    return outbound_from_record(
        {**check_queue_record_version(json.loads(body)), "number": number, "attempts": attempts}
    )
