"""Erasing: the payload leaves the log, and with it all that was made from it."""

from __future__ import annotations

from dataclasses import replace

from trimtab.core.edits import ERASED, erased_message
from trimtab.core.event import Edit, Event, Repair, Said


def scrub(event: Event, first: int, last: int, part: int | None = None) -> Event:
    """The event without the payload of the messages, or of one part, in that range."""
    body = event.body
    match body:
        case Said() | Repair() if first <= event.seq <= last:
            message = erased_message(body.message, part)
            return replace(event, body=replace(body, message=message, sizes=()))
        case Edit() if body.text and _tells(body, first, last, part):
            return replace(event, body=replace(body, text=ERASED))
        case _:
            return event


def _tells(edit: Edit, first: int, last: int, part: int | None) -> bool:
    """Whether the words that stand in may quote what is erased."""
    if edit.op == "summarise":
        return edit.first <= last and first <= edit.last
    return first <= edit.first <= last and (part is None or edit.part == part)
