"""Letters as rows: what is looked for beside a body of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from trimtab.stores.postgres.names import written
from trimtab.stores.postgres.rows import texts
from trimtab.worker.letters import Inbound, Outbound
from trimtab.worker.records import checked, dump, from_letter, from_reply, to_letter, to_reply


def letter_body(letter: Inbound) -> str:
    """What a letter says."""
    return dump(from_letter(letter)).decode()


def letter_of(row: tuple[Any, ...]) -> Inbound:
    """The letter whose row it was: number, body."""
    number, body = row
    return to_letter({**checked(json.loads(body)), "number": number})


def reply_parameters(replies: Sequence[Outbound]) -> list[str]:
    """Arrays of keys, doors and bodies."""
    return [
        texts([written(reply.key) for reply in replies]),
        texts([written(reply.route.door) for reply in replies]),
        texts([dump(from_reply(reply)).decode() for reply in replies]),
    ]


def reply_of(row: tuple[Any, ...]) -> Outbound:
    """The reply whose row it was: number, body, attempts."""
    number, body, attempts = row
    return to_reply({**checked(json.loads(body)), "number": number, "attempts": attempts})


def span_of(prefix: str) -> tuple[str, str | None]:
    """The range of names that begin so; None where it has no end."""
    first = written(prefix)
    for place in range(len(first) - 1, -1, -1):
        following = ord(first[place]) + 1
        if following <= 0x10FFFF:
            # Between the two lie the surrogates, which no text holds.
            end = chr(0xE000 if 0xD800 <= following < 0xE000 else following)
            return first, first[:place] + end
    return first, None


def gate_of(session: str) -> int:
    """The number of a session's gate, as a lock of the database."""
    digest = sha256(b"trimtab gate\0" + session.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
