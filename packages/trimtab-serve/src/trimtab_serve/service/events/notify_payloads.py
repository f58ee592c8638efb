"""Encode events of running sessions as short texts for PostgreSQL's NOTIFY.

They have the JSON form of all events. Consecutive parts of a reply are joined. Events that are in
the log are not sent: the receiver gets `EventsMissed`, and reads them there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimtab.session.events import (
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    TextDelta,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    UserNotice,
    turn_event_to_json,
)
from trimtab_serve.service.events.bus import EventsMissed, ReceivedEvent

MAX_NOTIFY_BYTES = 7_000
"""Maximum size of one notification in bytes. PostgreSQL allows 7,999."""

JsonEvent = dict[str, Any]

_encode_json = json.JSONEncoder(separators=(",", ":")).encode

MISSED: JsonEvent = {"type": EventsMissed.type}
MAX_SENT_CHARS = 500
"""Maximum number of characters of a text that the log has as well."""

_SENT = (TextDelta, ModelCallRetried, UserNotice, TurnStarted, TurnFinished, TurnFailed)
_SENT_TYPES: Mapping[str, type[ReceivedEvent]] = {
    kind.type: kind for kind in (*_SENT, EventsMissed)
}


def encode_turn_event(event: TurnEvent) -> JsonEvent | None:
    """Encode an event for another process. Return None if no subscriber there needs it."""
    match event:
        case ModelCallStarted() | ModelCallFinished():
            return None
        case TurnFinished():  # its other fields are for the caller of the turn
            return {"type": event.type, "reason": event.reason, "calls": event.calls}
        case ModelCallRetried():
            return turn_event_to_json(replace(event, reason=event.reason[:MAX_SENT_CHARS]))
        case UserNotice():
            return turn_event_to_json(replace(event, text=event.text[:MAX_SENT_CHARS]))
        case TextDelta() | TurnStarted() | TurnFailed():
            return turn_event_to_json(event)
        case _:
            return MISSED


def decode_event(encoded: JsonEvent) -> ReceivedEvent | None:
    """Decode an event. Return None if a newer version of trimtab sent an unknown kind."""
    values = {**encoded}
    kind = _SENT_TYPES.get(values.pop("type"))
    return None if kind is None else kind(**values)


def append_coalesced(pending: list[JsonEvent], encoded: JsonEvent) -> None:
    """Add an event to those that wait to be sent. Consecutive parts are joined."""
    last = pending[-1] if pending else {}
    if encoded == last == MISSED:
        return
    if encoded["type"] == TextDelta.type and last == {**encoded, "text": last.get("text")}:
        pending[-1] = {**last, "text": last["text"] + encoded["text"]}
    else:
        pending.append(encoded)


def build_event_payloads(sender: str, session: str, events: Sequence[JsonEvent]) -> Iterator[str]:
    """Yield the events of a session in notifications that are short enough."""
    head: dict[str, Any] = {"from": sender, "session": session}
    parts = [part for event in events for part in _split_long_text(event)]
    yield from _paginate(head, "events", parts)


def build_session_list_payloads(
    sender: str, list_key: str, sessions: Sequence[str]
) -> Iterator[str]:
    """Yield a list of sessions in notifications that are short enough."""
    yield from _paginate({"from": sender}, list_key, sessions)


def _paginate(head: dict[str, Any], list_key: str, items: Sequence[Any]) -> Iterator[str]:
    page: list[Any] = []
    # Numbered, because PostgreSQL sends only one of several equal notifications.
    number = 0
    size = empty = len(_encode_json(head)) + len(list_key) + 24
    for item in items:
        more = len(_encode_json(item)) + 1
        if page and size + more > MAX_NOTIFY_BYTES:
            yield _encode_json({**head, "part": number, list_key: page})
            page = []
            size = empty
            number = number + 1
        page.append(item)
        size += more
    if page:
        yield _encode_json({**head, "part": number, list_key: page})


def _split_long_text(encoded: JsonEvent) -> Iterator[JsonEvent]:
    """Split a long part into several."""
    text = encoded["text"] if encoded["type"] == TextDelta.type else ""
    if len(_encode_json(text)) > MAX_NOTIFY_BYTES // 2:
        half = len(text) // 2
        for part in (text[:half], text[half:]):
            yield from _split_long_text({**encoded, "text": part})
    else:
        yield encoded
