"""Erasing: the payload leaves the log, and with it all that was made from it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from trimtab.core.edits import ERASED, Handle, erased_message
from trimtab.core.event import Body, Edit, Erase, Event, Repair, Said, Settings
from trimtab.core.message import ToolCall, ToolResult
from trimtab.core.search import RECALL_TOOLS


def to_erase(
    events: Sequence[Event],
    named: Handle,
    why: str,
    *,
    lost: Callable[[int], bool] = lambda _: False,
) -> list[Erase]:
    """What must be destroyed for a handle: what it names, and answers that may repeat it.

    What a rewind has undone is among it: a later one could bring it back. An answer of the recall
    tools is a copy, so all that came later go; what they copied from stays. LookupError where it
    names nothing, or what is `lost`, by its position, from here: whoever wants something destroyed
    must not believe that it was.
    """
    here = {event.seq for event in events}
    for seq in range(max(1, named.first), named.last + 1):
        if seq not in here and lost(seq):
            raise LookupError(
                f"nothing was erased: position {seq} is no longer in memory; erase it where the "
                "log is kept"
            )
    found: list[Erase] = []
    asked = _Asked()
    for event in events:
        body, copies = event.body, asked.answered(event.body)
        if isinstance(body, Said | Repair) and named.first <= event.seq <= named.last:
            if (named.part or 0) < max(1, len(body.message.parts)):
                found.append(Erase(message=event.seq, part=named.part, why=why))
        elif found and event.seq > named.last:
            told = f"may repeat m{named.first}; {why}"
            found += [Erase(message=event.seq, part=part, why=told) for part in copies]
    if not found:
        part = "" if named.part is None else f".{named.part}"
        raise LookupError(f"nothing was erased: nothing is called m{named.first}{part}")
    return found


class _Asked:
    """What the calls of a log ask for: those of the recall tools are answered by copies."""

    def __init__(self) -> None:
        self._recall = True
        """Where no settings are known, they may be on."""
        self._calls: dict[str, bool] = {}
        """Whether the last call of an id is one of a recall tool."""

    def answered(self, body: Body) -> list[int | None]:
        """The parts of the next event that may repeat what was said before; None for all."""
        if isinstance(body, Settings):
            self._recall = body.recall
        if not isinstance(body, Said):
            return []
        parts = body.message.parts
        for part in parts:
            if isinstance(part, ToolCall):
                self._calls[part.id] = self._recall and part.name in RECALL_TOOLS
        copies = [
            index
            for index, part in enumerate(parts)
            if isinstance(part, ToolResult) and self._calls.get(part.call_id, False)
        ]
        return [None] if body.recalled or len(copies) == len(parts) > 0 else [*copies]


def eraser(erases: Sequence[Erase]) -> Callable[[Event], Event]:
    """A change of events that carries the erases out."""
    by_message: dict[int, list[Erase]] = {}
    for erase in erases:
        by_message.setdefault(erase.message, []).append(erase)
    places = sorted(by_message)

    def change(event: Event) -> Event:
        body = event.body
        first, last = event.seq, event.seq
        if isinstance(body, Edit):
            first, last = body.first, body.last
        for place in places[bisect_left(places, first) : bisect_right(places, last)]:
            for erase in by_message[place]:
                event = scrub(event, place, place, erase.part)
        return event

    return change


def scrub(event: Event, first: int, last: int, part: int | None = None) -> Event:
    """The event without the payload of the messages, or of one part, in that range."""
    body = event.body
    match body:
        case Said() | Repair() if first <= event.seq <= last:
            message = erased_message(body.message, part)
            return replace(event, body=replace(body, message=message, sizes=()))
        case Edit() if body.text and _tells(body, first, last, part):
            return replace(event, body=replace(body, text=ERASED, head=0, tail=0))
        case _:
            return event


def _tells(edit: Edit, first: int, last: int, part: int | None) -> bool:
    """Whether the words that stand in may quote what is erased."""
    if edit.op == "summarise":
        return edit.first <= last and first <= edit.last
    return first <= edit.first <= last and (part is None or edit.part == part)
