"""Returning to an earlier point of the conversation."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.event import Rewind
from trimtab.engine.policy.rejections import find_first_entry_of_user_undo
from trimtab.verbs.state import State, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoOutcome:
    """What `undo` removed."""

    position: int
    """The last position of the log that is still in force."""
    messages: int
    """How many messages were removed."""
    tool_results: int
    """How many of them were tool results. What a tool did outside the context is not undone."""
    text: str
    """The text of the user's newest message."""


def rewind(state: State, to: int | str) -> Verb[None]:
    """Return to an earlier point. Everything after it is undone."""
    position = to if isinstance(to, int) else parse_handle(to).last_seq
    end = state.window.seq
    if not 0 <= position <= end:
        raise ValueError(f"cannot rewind to {position}; positions go up to {end}")
    yield [Rewind(to=position)]


def undo(state: State) -> Verb[UndoOutcome | None]:
    """Remove the user's newest message and everything after it."""
    window = state.window
    user = window.newest_user_entry
    first = find_first_entry_of_user_undo(window)
    if user is None or first is None:
        return None
    after = [entry for seq, entry in window.entries.items() if seq > user.seq]
    tool_results = sum(len(entry.message.results) for entry in after)
    before = window.conversation.total_messages
    yield from rewind(state, first.seq - 1)
    return UndoOutcome(
        position=first.seq - 1,
        messages=before - state.window.conversation.total_messages,
        tool_results=tool_results,
        text=user.message.text,
    )
