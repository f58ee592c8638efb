"""Messages as rows: what is looked for beside a body of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
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
from trimtab.stores.postgres.event_rows import format_text_array
from trimtab.stores.postgres.session_keys_and_text_escaping import escape_for_text_column


def encode_inbound_body(inbound: InboundMessage) -> str:
    """What a message says."""
    return encode_queue_record(inbound_to_record(inbound)).decode()


def inbound_from_row(row: tuple[Any, ...]) -> InboundMessage:
    """The message whose row it was: number, body."""
    number, body = row
    return inbound_from_record({**check_queue_record_version(json.loads(body)), "number": number})


def build_reply_arrays(replies: Sequence[OutboundMessage]) -> list[str]:
    """Arrays of keys, channels and bodies."""
    return [
        format_text_array([escape_for_text_column(reply.key) for reply in replies]),
        format_text_array([escape_for_text_column(reply.route.channel) for reply in replies]),
        format_text_array(
            [encode_queue_record(outbound_to_record(reply)).decode() for reply in replies]
        ),
    ]


def outbound_from_row(row: tuple[Any, ...]) -> OutboundMessage:
    """The reply whose row it was: number, body, attempts."""
    number, body, attempts = row
    return outbound_from_record(
        {**check_queue_record_version(json.loads(body)), "number": number, "attempts": attempts}
    )


def compute_prefix_range(prefix: str) -> tuple[str, str | None]:
    """The range of names that begin so; None where it has no end."""
    first = escape_for_text_column(prefix)
    for place in range(len(first) - 1, -1, -1):
        following = ord(first[place]) + 1
        if following <= 0x10FFFF:
            # Between the two lie the surrogates, which no text holds.
            end = chr(0xE000 if 0xD800 <= following < 0xE000 else following)
            return first, first[:place] + end
    return first, None


def compute_session_lock_key(session: str) -> int:
    """The number of a session's gate, as a lock of the database."""
    digest = sha256(b"trimtab gate\0" + session.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
