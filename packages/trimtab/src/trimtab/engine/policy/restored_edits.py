"""Restore edits after the caller's list of messages diverged.

A change in the middle of the list undoes every later edit, even edits of messages that did not
change. This module makes those edits again.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from trimtab.engine.log.event import Edit, EventBody, Pin
from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.tokens.counter import with_recomputed_size
from trimtab.engine.window.matching import is_same_message, list_entries_after
from trimtab.engine.window.structure import Entry, Group
from trimtab.engine.window.window import Window

_RESTORED_REASON = "hidden before the caller changed the list of messages"


class _EarlierEntry(NamedTuple):
    """A message as it was shown before the list diverged."""

    seq: int
    message: Message
    edits: dict[int, Edit]
    pinned: bool
    hidden: bool


class EditsInForce:
    """The edits of a window that a rewind to a position will undo."""

    def __init__(self, window: Window, position: int) -> None:
        self._position = position
        groups = window.conversation.groups
        self._hiding = {
            group.hidden_by: group.hidden for group in groups if group.hidden_by > position
        }
        self._earlier: dict[int, _EarlierEntry] = {}
        self._by_content: dict[object, deque[_EarlierEntry]] = defaultdict(deque)
        for entry in _entries_of(groups):
            was_hidden = entry.round.group.hidden_by > position
            edits = {
                part: edit
                for part, edit in entry.edits.items()
                if entry.edited_by.get(part, 0) > position
            }
            was_pinned = bool(entry.pinned)
            earlier = _EarlierEntry(entry.seq, entry.message, edits, was_pinned, was_hidden)
            if entry.seq <= position:
                self._earlier[entry.seq] = earlier
            else:
                self._by_content[_content_key(entry.message)].append(earlier)

    def restore(self, window: Window, budget: Budget) -> Iterator[EventBody]:
        """Yield the events that hide unchanged messages again. Apply each one before you ask for
        the next."""
        pairs = [*self._pair(window)]
        for entry, earlier in pairs:
            for part, edit in earlier.edits.items():
                moved_edit = _moved_edit(edit, earlier.seq, entry.seq)
                yield with_recomputed_size(moved_edit, entry.message.parts[part], window.counter)
            if earlier.pinned and not entry.pinned:
                yield Pin(first=entry.seq, last=entry.seq, pinned=True)
        new_seqs: dict[int, int] = {}
        for seq, edit in sorted(self._hiding.items()):
            if edit is not None and edit.last <= self._position:
                prior = edit.prior if edit.prior <= self._position else new_seqs.get(edit.prior, 0)
                yield replace(edit, prior=prior)
                new_seqs[seq] = window.seq
        hidden_seqs = {entry.seq for entry, earlier in pairs if earlier.hidden}
        plan = Plan(window, budget)
        again = [
            group
            for group in plan.visible_groups()
            if all(entry.seq in hidden_seqs or entry.is_repair for entry in group.entries())
        ]
        for group in plan.order_for_hiding(again):
            plan.drop(group, _RESTORED_REASON)
        yield from plan.to_decision().edits

    def _pair(self, window: Window) -> Iterator[tuple[Entry, _EarlierEntry]]:
        """Yield the current messages, each with its earlier version."""
        for seq, earlier in self._earlier.items():
            if seq in window.entries:
                yield window.entries[seq], earlier
        for entry in list_entries_after(window, self._position):
            candidates = self._by_content.get(_content_key(entry.message))
            if candidates and is_same_message(candidates[0].message, entry.message):
                yield entry, candidates.popleft()


def _entries_of(groups: list[Group]) -> Iterator[Entry]:
    return (entry for group in groups for entry in group.entries() if not entry.is_repair)


def _content_key(message: Message) -> object:
    """Return a key that is equal for two messages with the same content."""
    contents: list[object] = []
    for part in message.parts:
        match part:
            case Text() if part.text:
                contents.append(part.text)
            case ToolCall():
                contents.append(("call", part.id))
            case ToolResult():
                contents.append(("result", part.call_id))
            case _:
                pass
    return message.role if message.role != "tool" else "user", *contents


def _moved_edit(edit: Edit, before: int, now: int) -> Edit:
    """Return the edit of a message that is now at another position, with an updated handle."""
    if before == now:
        return edit
    handle = re.compile(rf"\bm{before}(?=\.\d)")
    return replace(edit, first=now, last=now, text=handle.sub(f"m{now}", edit.text))
