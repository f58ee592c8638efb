"""The whole conversation: each message that is in force, hidden from the model or not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trimtab.engine.log.event import Edit, Event, MessageAdded, Rewind
from trimtab.engine.log.message import SENDER_KEY, Message
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.engine.recall.visibility import STATE_BY_EDIT_KIND, explain_message_visibility
from trimtab.engine.window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMessage:
    """A message of a conversation, as it was added, and how the model sees it now."""

    handle: str
    """Its handle, such as `m12`. `recall`, `why` and `messages(after=…)` take it."""
    message: Message
    """The message, as it was added."""
    at: float | None
    """When it was added, in seconds since the epoch; None if it came in a list with later ones."""
    sender: str | None
    """The user who sent it, if a channel named one."""
    state: str
    """How the model sees it now: `shown` in full; `truncated`, or `partial` if its parts differ;
    not at all if it is `masked`, `summarised` or `dropped`; `listed` among the user's earlier
    words."""
    reason: str
    """The rule that decided it, with its numbers; empty if it is shown."""


@dataclass(frozen=True, slots=True)
class _SpanEdit:
    """An edit that hides or shows whole messages."""

    seq: int
    """The position of the edit."""
    first: int
    """The position of its first message."""
    last: int
    """The position of its last message."""
    op: str
    """`drop`, `summarise` or `reveal`."""
    reason: str
    """Why it was made."""
    exempt_seqs: frozenset[int]
    """Positions of messages in between that it leaves visible."""


class HidingEdits:
    """Finds which edit hides a message that has left the memory of a window.

    It reads the events after the first message in question, and keeps only edits and rewinds.
    Messages must be asked for in the order of the log.
    """

    def __init__(self) -> None:
        self.rewinds: list[tuple[int, int]] = []
        """The position and the target of each rewind."""
        self._edits: deque[_SpanEdit] = deque()
        self._reveals: list[_SpanEdit] = []
        self._newest_user_seq = 0

    def add_event(self, event: Event) -> None:
        """Read the next event of the log."""
        match event.body:
            case MessageAdded(message=message) if message.role == "user" and not message.results:
                self._newest_user_seq = event.seq
            case Rewind(to=to):
                self.rewinds.append((event.seq, to))
            case Edit(part=None) as edit:
                exempt_seqs = frozenset((*edit.spares, self._newest_user_seq))
                span = _SpanEdit(event.seq, edit.first, edit.last, edit.op, edit.why, exempt_seqs)
                self._edits.append(span)
            case Edit(op="reveal") as edit:
                span = _SpanEdit(event.seq, edit.first, edit.last, edit.op, edit.why, frozenset())
                self._edits.append(span)
            case _:
                pass

    def finish(self) -> None:
        """Forget the edits that a rewind has undone. Every event was read."""
        in_force = [edit for edit in self._edits if is_event_in_force(edit.seq, self.rewinds)]
        self._edits = deque(edit for edit in in_force if edit.op != "reveal")
        self._reveals = [edit for edit in in_force if edit.op == "reveal"]

    def find_state_and_reason(self, seq: int) -> tuple[str, str]:
        """Return the state of a hidden message, and the reason."""
        while self._edits and self._edits[0].last < seq:
            self._edits.popleft()
        reveal_seq = max((edit.seq for edit in self._reveals if _covers(edit, seq)), default=0)
        # What is hidden stays hidden by the first edit: later ones pass over it.
        for edit in self._edits:
            if edit.seq > reveal_seq and _covers(edit, seq):
                return STATE_BY_EDIT_KIND[edit.op], edit.reason
        return "dropped", ""


def _covers(edit: _SpanEdit, seq: int) -> bool:
    return edit.first <= seq <= edit.last and seq not in edit.exempt_seqs


def build_logged_message(
    window: Window,
    seq: int,
    message: Message,
    at: float | None,
    hiding_edits: HidingEdits | None = None,
) -> LoggedMessage | None:
    """Describe the message at a position; None if it was undone or erased.

    `hiding_edits` is needed for a message that has left memory.
    """
    handle = f"m{seq}"
    base = window.base
    parts = range(max(1, len(message.parts)))
    if all(base.find_erasing_event(seq, part) is not None for part in parts):
        return None
    if seq in window.entries:
        state, reason = _find_state_and_reason(window, handle, message)
    elif not is_event_in_force(seq, base.rewinds) or hiding_edits is None:
        return None
    else:
        state, reason = hiding_edits.find_state_and_reason(seq)
        if seq in window.conversation.user_words.messages:
            state = "listed"
    sender = (message.extra or {}).get(SENDER_KEY)
    return LoggedMessage(
        handle=handle, message=message, at=at, sender=sender, state=state, reason=reason
    )


def _find_state_and_reason(window: Window, handle: str, message: Message) -> tuple[str, str]:
    visibility = explain_message_visibility(window, handle, message)
    parts = [explain_message_visibility(window, part, message) for part in visibility.parts]
    reasons = [part.reason for part in parts or [visibility] if part.reason]
    return visibility.state, "; ".join(dict.fromkeys(reasons))
