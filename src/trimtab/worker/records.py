"""Letters and replies as plain JSON values: what a mail's log is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trimtab.core.message import message_from_json, message_to_json
from trimtab.worker.letters import Inbound, Outbound, Route

VERSION = 1
"""Of the stored shape. A change of shape raises it and teaches `checked` the one before."""

Record = Mapping[str, Any]


def dump(record: Record) -> bytes:
    """A record as a line of JSON, without its end. Keys keep their order, as in a session's log."""
    whole = {"v": VERSION, **record}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()


def checked(record: Record) -> Record:
    """A record that was read; one of a later release is refused."""
    if record.get("v") != VERSION:
        raise ValueError(
            f"a record of the mail has format version {record.get('v')}; this release reads "
            f"{VERSION}: upgrade trimtab to serve from this folder"
        )
    return record


def from_letter(letter: Inbound) -> Record:
    """A letter that came in."""
    return {
        "kind": "letter",
        "number": letter.number,
        "session": letter.session,
        "key": letter.key,
        "at": letter.at,
        "message": message_to_json(letter.message),
        "route": from_route(letter.route) if letter.route is not None else None,
    }


def to_letter(record: Record) -> Inbound:
    """The inverse of `from_letter`."""
    return Inbound(
        session=record["session"],
        message=message_from_json(record["message"]),
        key=record["key"],
        at=record["at"],
        route=to_route(record["route"]) if record["route"] is not None else None,
        number=record["number"],
    )


def from_reply(reply: Outbound) -> Record:
    """A reply that must go out."""
    return {
        "number": reply.number,
        "session": reply.session,
        "seq": reply.seq,
        "key": reply.key,
        "attempts": reply.attempts,
        "text": reply.text,
        "route": from_route(reply.route),
    }


def to_reply(record: Record) -> Outbound:
    """The inverse of `from_reply`."""
    return Outbound(
        session=record["session"],
        seq=record["seq"],
        text=record["text"],
        route=to_route(record["route"]),
        key=record["key"],
        number=record["number"],
        attempts=record["attempts"],
    )


def from_route(route: Route) -> Record:
    """Where a reply goes."""
    return {"door": route.door, "address": dict(route.address)}


def to_route(record: Record) -> Route:
    """The inverse of `from_route`."""
    return Route(door=record["door"], address=record["address"])
