"""Erasing: the payload leaves the log, and with it all that was made from it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trimtab.core.edits import ERASED, Handle, erased_message
from trimtab.core.event import Body, Edit, Erase, Event, Repair, Retention, Said, Settings, Turn
from trimtab.core.message import ToolCall, ToolResult
from trimtab.core.search import RECALL_TOOLS


class Erasing:
    """What must be destroyed for a handle: what it names, and answers that may repeat it.

    It hears a whole log, event by event: what was asked before tells what an answer is. What a
    rewind has undone is among it: a later one could bring it back. An answer of the recall tools is
    a copy, so all that came later go; what they copied from stays.
    """

    def __init__(self, named: Handle, why: str, events: Iterable[Event] = ()) -> None:
        self.all: list[Erase] = []
        """All of it, what an earlier erasure has destroyed included."""
        self.keys: set[str] = set()
        """Idempotency keys of the messages among it."""
        self.said: list[str] = []
        """What users say in it still."""
        self.tools: list[str] = []
        """Idempotency keys of all tools that were started, whichever message called them."""
        self.turn = False
        """Whether the last turn has not been ended: somebody may be at work in it."""
        self._named, self._why = named, why
        self._done: set[tuple[int, int | None]] = set()
        """What earlier erasures name: the message, and the part or None for all."""
        self._before = 0
        """All messages before this position were destroyed by a rule."""
        self._here: set[int] = set()
        """The positions among those named that were heard."""
        self._end = 0
        """The last position that was heard."""
        self._recall = True
        """Where no settings are known, the tools may be on."""
        self._looked_up: set[str] = set()
        """Ids whose last call is one of a recall tool."""
        for event in events:
            self.hear(event)

    def hear(self, event: Event) -> None:
        """Take the next event of the log."""
        body, named, self._end = event.body, self._named, event.seq
        copies = self._copies(body)
        match body:
            case Erase():
                self._done.add((body.message, body.part))
            case Retention():
                self._before = max(self._before, body.before)
            case Turn():
                self.turn = body.state != "ended"
                self.tools += [body.key] if body.key is not None else []
            case _:
                pass
        if named.first <= event.seq <= named.last:
            self._here.add(event.seq)
            parts = max(1, len(body.message.parts)) if isinstance(body, Said | Repair) else 0
            if (named.part or 0) < parts:
                self._find(event, named.part, self._why)
        elif copies and not all(map(self._is_done, self.all)):
            # Of what was destroyed before it was looked up an answer tells nothing.
            for part in copies:
                self._find(event, part, f"may repeat m{named.first}; {self._why}")

    def found(self, *, lost: Callable[[int], bool] = lambda _: False) -> list[Erase]:
        """What is left to be destroyed of it. LookupError where the handle names nothing, or what
        is `lost`, by its position, from here: whoever wants something destroyed must not believe
        that it was."""
        named = self._named
        for seq in range(max(1, named.first), min(named.last, self._end) + 1):
            if seq not in self._here and lost(seq):
                raise LookupError(
                    f"nothing was erased: position {seq} is no longer in memory; erase it where "
                    "the log is kept"
                )
        if not self.all:
            part = "" if named.part is None else f".{named.part}"
            raise LookupError(f"nothing was erased: nothing is called m{named.first}{part}")
        return [one for one in self.all if not self._is_done(one)]

    def _find(self, event: Event, part: int | None, why: str) -> None:
        self.all.append(Erase(message=event.seq, part=part, why=why))
        if isinstance(event.body, Said):
            if event.body.key is not None:
                self.keys.add(event.body.key)
            if event.body.message.role == "user":
                self.said.append(event.body.message.text)

    def _is_done(self, one: Erase) -> bool:
        if one.message < self._before:
            return True
        return not self._done.isdisjoint({(one.message, None), (one.message, one.part)})

    def _copies(self, body: Body) -> list[int | None]:
        """The parts of the next event that may repeat what was said before; None for all."""
        if isinstance(body, Settings):
            self._recall = body.recall
        if not isinstance(body, Said):
            return []
        parts = body.message.parts
        for part in parts:
            if isinstance(part, ToolCall):
                self._looked_up.discard(part.id)
                if self._recall and part.name in RECALL_TOOLS:
                    self._looked_up.add(part.id)
        copies = [
            index
            for index, part in enumerate(parts)
            if isinstance(part, ToolResult) and part.call_id in self._looked_up
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
            return replace(event, body=replace(body, text=ERASED))
        case _:
            return event


def _tells(edit: Edit, first: int, last: int, part: int | None) -> bool:
    """Whether the words that stand in may quote what is erased."""
    if edit.op == "summarise":
        return edit.first <= last and first <= edit.last
    return first <= edit.first <= last and (part is None or edit.part == part)
