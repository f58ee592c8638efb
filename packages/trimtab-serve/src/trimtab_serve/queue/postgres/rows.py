"""Convert messages and names to parameters of PostgreSQL statements."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from trimtab.stores.postgres.escaping import escape_for_text_column
from trimtab.stores.postgres.event_rows import format_text_array
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.rows import encode_outbound_body


def build_reply_arrays(replies: Sequence[OutboundMessage]) -> list[str]:
    """Return arrays of keys, channels and bodies."""
    return [
        format_text_array([escape_for_text_column(reply.key) for reply in replies]),
        format_text_array([escape_for_text_column(reply.route.channel) for reply in replies]),
        format_text_array([*map(encode_outbound_body, replies)]),
    ]


def compute_prefix_range(prefix: str) -> tuple[str, str | None]:
    """Return the range of names with a prefix. The end is None if the range has no end."""
    first = escape_for_text_column(prefix)
    for place in range(len(first) - 1, -1, -1):
        following = ord(first[place]) + 1
        if following <= 0x10FFFF:
            # The surrogates lie between the two, and no text contains them.
            end = chr(0xE000 if 0xD800 <= following < 0xE000 else following)
            return first, first[:place] + end
    return first, None


def compute_session_lock_key(session: str) -> int:
    """Return the number of a session's lock in the database."""
    digest = sha256(b"trimtab gate\0" + session.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
