"""Encode events of running sessions as short texts for PostgreSQL's NOTIFY.

Parts of a reply are sent as they are, and consecutive parts are joined. Logged events are not sent.
The receiver only learns that there are new ones, and reads them from the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
)
from trimtab_serve.service.events.bus import EventsMissed, ReceivedEvent

MAX_NOTIFY_BYTES = 7_000
"""Maximum size of one notification in bytes. PostgreSQL allows 7,999."""

EncodedEvent = list[Any]
"""An encoded event: a word for its kind, then its values."""

_encode_json = json.JSONEncoder(separators=(",", ":")).encode


def encode_turn_event_as_tagged_list(event: TurnEvent) -> EncodedEvent | None:
    """Encode an event for another process. Return None if no subscriber there needs it."""
    match event:
        case TextDelta():
            return ["piece", event.kind, event.text]
        case ModelCallRetried():
            return ["restarted", event.reason[:500], event.limit]
        case UserNotice():
            return ["notice", event.text[:500]]
        case TurnStarted():
            return ["turn", event.session, event.model, event.dialect]
        case TurnFinished():
            return ["end", event.reason, event.calls]
        case TurnFailed():
            return ["broke_off", event.reason, event.error]
        case ModelCallStarted() | ModelCallFinished():
            return None
        case _:
            return ["moved"]


def decode_turn_event(encoded: EncodedEvent) -> ReceivedEvent | None:
    """Decode an event. Return None if a newer version of trimtab sent an unknown kind."""
    match encoded:
        case ["piece", kind, text]:
            return TextDelta(kind=kind, text=text)
        case ["restarted", why, limit]:
            return ModelCallRetried(reason=why, limit=limit)
        case ["notice", text]:
            return UserNotice(text=text)
        case ["turn", session, model, dialect]:
            return TurnStarted(session=session, model=model, dialect=dialect)
        case ["end", why, calls]:
            return TurnFinished(reason=why, calls=calls)
        case ["broke_off", why, error]:
            return TurnFailed(reason=why, error=error)
        case ["moved"]:
            return EventsMissed()
        case _:
            return None


def append_coalesced(pending: list[EncodedEvent], encoded: EncodedEvent) -> None:
    """Add an event to those that wait to be sent. Consecutive parts are joined."""
    if pending and encoded[0] == "moved" == pending[-1][0]:
        return
    if pending and encoded[0] == "piece" and pending[-1][:2] == encoded[:2]:
        pending[-1] = [*encoded[:2], pending[-1][2] + encoded[2]]
    else:
        pending.append(encoded)


def build_event_payloads(
    sender: str, session: str, events: Sequence[EncodedEvent]
) -> Iterator[str]:
    """Yield the events of a session in notifications that are short enough."""
    head: dict[str, Any] = {"from": sender, "session": session}
    yield from _paginate(head, "told", [part for each in events for part in _split_long_text(each)])


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
            page, size, number = [], empty, number + 1
        page.append(item)
        size += more
    if page:
        yield _encode_json({**head, "part": number, list_key: page})


def _split_long_text(encoded: EncodedEvent) -> Iterator[EncodedEvent]:
    """Split a long part into several."""
    if encoded[0] == "piece" and len(_encode_json(encoded[2])) > MAX_NOTIFY_BYTES // 2:
        half = len(encoded[2]) // 2
        for text in (encoded[2][:half], encoded[2][half:]):
            yield from _split_long_text([*encoded[:2], text])
    else:
        yield encoded
