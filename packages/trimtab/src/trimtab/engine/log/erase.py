"""Erasure: remove a payload from the log, together with everything that was made from it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trimtab.engine.log.call_failure import erase_provider_message
from trimtab.engine.log.edits import (
    ERASED_PLACEHOLDER,
    REJECTED_REASON,
    HandleTarget,
    erase_message_payload,
)
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    EventBody,
    MessageAdded,
    ModelCall,
    PayloadErasure,
    RetentionErasure,
    Settings,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.message import ToolCall, ToolResult

RECALL_TOOL = "recall"

SEARCH_TOOL = "search_history"

RECALL_TOOL_NAMES = (RECALL_TOOL, SEARCH_TOOL)
"""Names of the tools that a model uses to look up hidden content."""


class ErasurePlanner:
    """Find what must be destroyed for some handles: their targets, and answers that may repeat
    them.

    It reads a whole log, event by event, because earlier calls show what an answer is. It includes
    events that a rewind has undone, because a later rewind could bring them back. An answer of a
    recall tool is a copy. So all later recall answers are destroyed; the text that they copied from
    stays. A volatile text has no handle. It is destroyed with the messages that its call answered:
    those since the user's last message.
    """

    def __init__(
        self,
        targets: HandleTarget | Sequence[HandleTarget],
        reason: str,
        events: Iterable[Event] = (),
    ) -> None:
        self.erasures: list[PayloadErasure] = []
        """All erasures for the handles, including those that an earlier erasure has carried out."""
        self.message_keys: set[str] = set()
        """Idempotency keys of the messages to erase."""
        self.user_texts: list[str] = []
        """The texts of user messages to erase that are still in the log."""
        self.tool_keys: list[str] = []
        """Idempotency keys of all tools that were started, whichever message called them."""
        self.is_turn_open = False
        """Whether the last turn has not ended. A process may still be working on it."""
        all_targets = [targets] if isinstance(targets, HandleTarget) else [*targets]
        self._targets = sorted(all_targets, key=lambda one: one.first_seq)
        self._to_come, self._in_range = self._targets[::-1], list[HandleTarget]()
        """Targets that begin after the last position, the next one last; and targets that contain
        it."""
        self._reason = reason
        self._already_erased: set[tuple[int, int | None]] = set()
        """Targets of earlier erasures: the message, and the part or None for all parts."""
        self._retained_from = 0
        """A retention rule destroyed all messages before this position."""
        self._seen_positions: set[int] = set()
        """Positions within the targets that were read."""
        self._last_position = 0
        """The last position that was read."""
        self._recall_enabled = True
        """Whether the recall tools are on. Assumed until the first settings event."""
        self._erased_in_turn: int | None = None
        """Index of the newest erasure of a named message, until the user's next message."""
        self._recall_call_ids: set[str] = set()
        """Ids of calls whose last use was a call of a recall tool."""
        for event in events:
            self.add_event(event)

    def add_event(self, event: Event) -> None:
        """Read the next event of the log."""
        body = event.body
        self._last_position = event.seq
        while self._to_come and self._to_come[-1].first_seq <= event.seq:
            self._in_range.append(self._to_come.pop())
        targets_here = self._in_range = [one for one in self._in_range if event.seq <= one.last_seq]
        copies = self._list_recall_copies(body)
        match body:
            case PayloadErasure():
                self._already_erased.add((body.message, body.part))
            case RetentionErasure():
                self._retained_from = max(self._retained_from, body.before)
            case TurnProgressRecord():
                self.is_turn_open = body.state != "ended"
                self.tool_keys += [body.key] if body.key is not None else []
            case MessageAdded() if body.message.role == "user" and not body.message.results:
                self._erased_in_turn = None
            case ModelCall() if body.volatile is not None and self._erased_in_turn is not None:
                erasure = self.erasures[self._erased_in_turn]
                calls = (*erasure.calls, event.seq)
                self.erasures[self._erased_in_turn] = replace(erasure, calls=calls)
            case _:
                pass
        if targets_here:
            self._seen_positions.add(event.seq)
            parts = (
                max(1, len(body.message.parts))
                if isinstance(body, MessageAdded | ToolResultRepair)
                else 0
            )
            for index in {one.part_index for one in targets_here}:
                if (index or 0) < parts:
                    self._add_erasure(event, index, self._reason)
                    self._erased_in_turn = len(self.erasures) - 1
        elif copies and not all(map(self._is_already_erased, self.erasures)):
            # Of what was destroyed before it was looked up an answer tells nothing.
            for part in copies:
                why = f"may repeat m{self._targets[0].first_seq}; {self._reason}"
                self._add_erasure(event, part, why)

    @property
    def handles(self) -> list[str]:
        """The erased messages and parts: the named ones first, then answers that may repeat
        them."""
        return [
            f"m{one.message}" if one.part is None else f"m{one.message}.{one.part}"
            for one in self.erasures
        ]

    def list_pending_erasures(
        self, *, is_evicted: Callable[[int], bool] = lambda _: False
    ) -> list[PayloadErasure]:
        """Return the erasures that are still to be carried out.

        Raises:
            LookupError: A handle names nothing, or `is_evicted` says that a named position is no
                longer in memory. A caller must not believe that content was destroyed.
        """
        positions = sorted({one.message for one in self.erasures})
        for target in self._targets:
            for seq in range(
                max(1, target.first_seq), min(target.last_seq, self._last_position) + 1
            ):
                if seq not in self._seen_positions and is_evicted(seq):
                    raise LookupError(
                        f"nothing was erased: position {seq} is no longer in memory; erase "
                        "it in the store that keeps the log"
                    )
            if bisect_left(positions, target.first_seq) == bisect_right(positions, target.last_seq):
                part = "" if target.part_index is None else f".{target.part_index}"
                raise LookupError(f"nothing was erased: there is no m{target.first_seq}{part}")
        return [one for one in self.erasures if not self._is_already_erased(one)]

    def _add_erasure(self, event: Event, part: int | None, why: str) -> None:
        self.erasures.append(PayloadErasure(message=event.seq, part=part, why=why))
        if isinstance(event.body, MessageAdded):
            if event.body.key is not None:
                self.message_keys.add(event.body.key)
            if event.body.message.role == "user":
                self.user_texts.append(event.body.message.text)

    def _is_already_erased(self, one: PayloadErasure) -> bool:
        if one.message < self._retained_from:
            return True
        return not self._already_erased.isdisjoint({(one.message, None), (one.message, one.part)})

    def _list_recall_copies(self, body: EventBody) -> list[int | None]:
        """Return the parts of the next event that may repeat earlier messages; None for all
        parts."""
        if isinstance(body, Settings):
            self._recall_enabled = bool(body.recall)
        if not isinstance(body, MessageAdded):
            return []
        parts = body.message.parts
        for part in parts:
            if isinstance(part, ToolCall):
                self._recall_call_ids.discard(part.id)
                if self._recall_enabled and part.name in RECALL_TOOL_NAMES:
                    self._recall_call_ids.add(part.id)
        copies = [
            index
            for index, part in enumerate(parts)
            if isinstance(part, ToolResult) and part.call_id in self._recall_call_ids
        ]
        return [None] if body.recalled or len(copies) == len(parts) > 0 else [*copies]


def make_event_eraser(erasures: Sequence[PayloadErasure]) -> Callable[[Event], Event]:
    """Return a function that carries out the erasures on an event."""
    by_message: dict[int, list[PayloadErasure]] = {}
    for erase in erasures:
        by_message.setdefault(erase.message, []).append(erase)
    places = sorted(by_message)
    calls = {call for erase in erasures for call in erase.calls}

    def change(event: Event) -> Event:
        body = event.body
        first = event.seq
        last = event.seq
        if event.seq in calls:
            return erase_event_payload(event, first, last)
        if isinstance(body, Edit):
            first = body.first
            last = body.last
        for place in places[bisect_left(places, first) : bisect_right(places, last)]:
            for erase in by_message[place]:
                event = erase_event_payload(event, place, place, erase.part)
        return erase_provider_words(event) if places and event.seq > places[0] else event

    return change


def erase_event_payload(
    event: Event, first_seq: int, last_seq: int, part_index: int | None = None
) -> Event:
    """Return the event without the payload of the messages, or of one part, in a range."""
    body = event.body
    match body:
        case MessageAdded() | ToolResultRepair() if first_seq <= event.seq <= last_seq:
            message = erase_message_payload(body.message, part_index)
            return replace(event, body=replace(body, message=message, sizes=()))
        case Edit() if body.text and _may_quote_erased_text(body, first_seq, last_seq, part_index):
            return replace(event, body=replace(body, text=ERASED_PLACEHOLDER))
        case ModelCall() if body.volatile is not None and first_seq <= event.seq <= last_seq:
            return replace(event, body=replace(body, volatile=ERASED_PLACEHOLDER))
        case _:
            return event


def erase_provider_words(event: Event) -> Event:
    """Return the event without a provider's words, which may quote what it was sent."""
    body = event.body
    match body:
        case CallOutcome(error={"message": str(message)}):
            message = erase_provider_message(message)
            error = {**(body.error or {}), "message": message}
            if not message:
                del error["message"]
            return replace(event, body=replace(body, error=error))
        case Edit() if body.why.startswith(REJECTED_REASON):
            return replace(event, body=replace(body, why=REJECTED_REASON))
        case _:
            return event


def _may_quote_erased_text(edit: Edit, first: int, last: int, part: int | None) -> bool:
    """Whether the replacement text of an edit may quote erased content."""
    if edit.op == "summarise":
        return edit.first <= last and first <= edit.last
    return first <= edit.first <= last and (part is None or edit.part == part)
