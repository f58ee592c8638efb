"""Why the model sees something as it does: shown, cut, hidden, undone or erased, and the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trimtab.engine.log.edits import HandleTarget, parse_handle
from trimtab.engine.log.event import Edit, Event
from trimtab.engine.log.message import Message
from trimtab.engine.log.rewind import find_undoing_rewind
from trimtab.engine.recall.tools import (
    build_unknown_handle_error,
    recall_text,
    recall_text_from_messages,
)
from trimtab.engine.window.window import Window

STATE_DESCRIPTIONS = {
    "shown": "is in the context, in full",
    "partial": "is in the context only in part: some of its parts are cut, hidden or erased",
    "truncated": "is in the context, but cut",
    "masked": "is not in the context: a placeholder replaces it",
    "summarised": "is not in the context: a summary covers it",
    "dropped": "is not in the context: it was dropped, and a notice says so",
    "listed": "is in the context, in the list of the user's earlier messages",
    "undone": "is not in the context: a rewind has undone it",
    "erased": "is not in the context: its text was erased and cannot be shown",
}
"""A description of each state of a message or a part, for people."""
STATE_BY_EDIT_KIND = {
    "truncate": "truncated",
    "mask": "masked",
    "summarise": "summarised",
    "drop": "dropped",
    "reveal": "shown",
}
"""By kind of edit: the state of what it hides, cuts or shows."""
MAX_NAMED_PARTS = 10
"""A sentence names the state of each of so many parts. Of more it counts the states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityReason:
    """Why the model sees something as it does."""

    handle: str
    """The handle in question."""
    state: str
    """One of `STATE_DESCRIPTIONS`."""
    since: float | None = None
    """When that was decided, in seconds since the epoch; None if nothing was decided."""
    event: int | None = None
    """The position of the edit, the rewind or the erasure; None if nothing was decided."""
    reason: str = ""
    """The rule that decided it, with its numbers."""
    replacement: str = ""
    """What the model sees instead; empty for nothing."""
    text: str = ""
    """The text itself; empty if it was erased."""
    parts: dict[str, str] = field(default_factory=dict[str, str])
    """By handle: the state of each part of a message, or of each message of a range, that is
    `partial`; otherwise empty."""

    def __str__(self) -> str:
        """Return a sentence for people: the state, and the reason."""
        sentence = f"{self.handle} {STATE_DESCRIPTIONS[self.state]}"
        if len(self.parts) > MAX_NAMED_PARTS:
            counts = Counter(self.parts.values()).most_common()
            sentence += f" ({', '.join(f'{count} {state}' for state, count in counts)})"
        elif self.parts:
            states = (f"{handle}: {state}" for handle, state in self.parts.items())
            sentence += f" ({', '.join(states)})"
        return f"{sentence}; {self.reason}" if self.reason else sentence


def explain_message_visibility(
    window: Window, handle: str, message: Message | None
) -> VisibilityReason:
    """Explain why the window shows what a handle names as it does.

    `message` is the first message that the handle names. The result has the position of the
    deciding event; `add_event_time_and_reason` adds its time and reason.
    """
    target = parse_handle(handle)
    seqs = [seq for seq in window.entries if target.first_seq <= seq <= target.last_seq]
    if target.first_seq < target.last_seq and seqs:
        return _explain_range(window, handle, seqs)
    if message is None or (target.part_index or 0) >= max(1, len(message.parts)):
        raise build_unknown_handle_error(handle, window.seq, window.entries, message)
    if parts := _find_part_states(window, target, message):
        text = recall_text_from_messages(window, handle, {target.first_seq: message})
        return VisibilityReason(handle=handle, state="partial", text=text, parts=parts)
    erasing_event = window.base.find_erasing_event(target.first_seq, target.part_index)
    if erasing_event is not None:
        return VisibilityReason(handle=handle, state="erased", event=erasing_event)
    entry = window.entries.get(target.first_seq)
    if entry is None:
        text = recall_text_from_messages(window, handle, {target.first_seq: message})
        undone = find_undoing_rewind(target.first_seq, window.base.rewinds)
        by, reason = (undone[0], f"rewound to {undone[1]}") if undone else (None, "")
        return VisibilityReason(handle=handle, state="undone", event=by, reason=reason, text=text)
    text = recall_text(window, handle)
    part = 0 if target.part_index is None and len(entry.message.parts) == 1 else target.part_index
    group = entry.round.group
    edit = group.hidden
    by = group.hidden_by
    if edit is None and part is not None:
        edit = entry.edits.get(part)
        by = entry.edited_by.get(part, 0)
    if edit is None:
        return VisibilityReason(handle=handle, state="shown", text=text)
    state = STATE_BY_EDIT_KIND[edit.op]
    replacement = _text_in_place_of(window, edit)
    if group.hidden is not None and (
        list_text := window.conversation.user_words.render_message(target.first_seq, part)
    ):
        state = "listed"
        replacement = list_text
    return VisibilityReason(
        handle=handle, state=state, event=by, reason=edit.why, replacement=replacement, text=text
    )


def _explain_range(window: Window, handle: str, seqs: Sequence[int]) -> VisibilityReason:
    """Explain messages together: by what hides most of them."""
    reasons = [
        explain_message_visibility(window, f"m{seq}", window.entries[seq].message) for seq in seqs
    ]
    states = {reason.handle: reason.state for reason in reasons}
    text = recall_text(window, handle)
    counts = Counter(reason.event for reason in reasons if reason.event is not None)
    event = max(counts, key=counts.__getitem__, default=None)
    main = next(reason for reason in reasons if reason.event == event)
    if len(set(states.values())) == 1:
        return replace(main, handle=handle, text=text, parts={})
    return VisibilityReason(
        handle=handle, state="partial", event=event, reason=main.reason, text=text, parts=states
    )


def _find_part_states(window: Window, target: HandleTarget, message: Message) -> dict[str, str]:
    """Return the state of each part, if the parts of a message have different states; otherwise
    nothing."""
    is_one_message = target.part_index is None and target.first_seq == target.last_seq
    if not is_one_message or len(message.parts) < 2:
        return {}
    handles = [f"m{target.first_seq}.{index}" for index in range(len(message.parts))]
    states = {one: explain_message_visibility(window, one, message).state for one in handles}
    distinct = set(states.values())
    return states if len(distinct) > 1 or distinct <= {"truncated", "masked"} else {}


def add_event_time_and_reason(
    reason: VisibilityReason, deciding_event: Event | None
) -> VisibilityReason:
    """Return the same with the time and the reason of the deciding event."""
    if deciding_event is None:
        return reason
    event_reason: str = getattr(deciding_event.body, "why", "")
    return replace(reason, since=deciding_event.at, reason=reason.reason or event_reason)


def _text_in_place_of(window: Window, edit: Edit) -> str:
    match edit.op:
        case "drop":
            return window.conversation.dropped_notice()
        case "summarise":
            return window.summary.text if window.summary is not None else ""
        case _:
            return edit.text
