"""Messages as database rows: columns for searching, and a JSON body."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trimtab.session.threads import run_in_thread_if_long
from trimtab_serve.queue.messages import (
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
    """Return the body of a message."""
    return encode_queue_record(inbound_to_record(inbound)).decode()


def inbound_from_row(row: tuple[Any, ...]) -> InboundMessage:
    """Return the message of a row: number and body."""
    number, body = row
    return inbound_from_record({**check_queue_record_version(json.loads(body)), "number": number})


async def inbound_from_rows(rows: Sequence[tuple[Any, ...]]) -> list[InboundMessage]:
    """Return the messages of rows. Long ones are read in a thread."""
    size = sum(len(body) for _, body in rows)
    return await run_in_thread_if_long(lambda: [inbound_from_row(row) for row in rows], size)


def encode_outbound_body(reply: OutboundMessage) -> str:
    """Return the body of a reply."""
    return encode_queue_record(outbound_to_record(reply)).decode()


def outbound_from_row(row: tuple[Any, ...]) -> OutboundMessage:
    """Return the reply of a row: number, body and attempts."""
    number, body, attempts = row
    return outbound_from_record(
        {**check_queue_record_version(json.loads(body)), "number": number, "attempts": attempts}
    )
