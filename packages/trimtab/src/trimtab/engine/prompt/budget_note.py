"""The line at the end of a request by which the model knows how full its window is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Media, Part, ToolCall, ToolResult
from trimtab.engine.log.text_cuts import add_recall_handle
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.guard import request_fits
from trimtab.engine.window.window import Window


def add_budget_note(
    window: Window, volatile: str | None, compute_budget: Callable[[str | None], Budget]
) -> str | None:
    """Return the volatile text of the window's next call, with the note if the settings ask for it.

    Nothing is hidden for the note: if there is no room for it, there is none. A reply that the
    model continues stays the last message.
    """
    rounds = window.conversation.rounds
    if not window.settings.budget_note or rounds[-1].entries[-1].message.role == "assistant":
        return volatile
    budget = compute_budget(volatile)
    tokens = round((budget.head.tokens + window.tokens) * budget.ratio)
    note = f"[context window: {tokens / budget.limit:.0%} of {budget.limit:,} tokens used]"
    for edit, what in _list_hiding_edits(window):
        note = f"{note[:-1]} · last hidden: {what}]"
        note = add_recall_handle(note, edit.handle, window.settings.recall_hint)
        break
    text = f"{volatile}\n\n{note}" if volatile else note
    return text if request_fits(window, compute_budget(text)) else volatile


def _list_hiding_edits(window: Window) -> Iterator[tuple[Edit, str]]:
    """Yield the edits that still hide something, newest first, each with what it hides."""
    base = window.base
    newest_first = chain(
        reversed(base.events_since_snapshot), reversed(base.snapshot_events.values())
    )
    for event in newest_first:
        edit = event.body
        if not isinstance(edit, Edit) or edit.op == "reveal":
            continue
        if edit.part is None:
            groups = window.conversation.groups_between(edit.first, edit.last)
            hidden_groups = [g for g in groups if g.hidden and g.hidden_by == event.seq]
            if hidden_groups:
                yield edit, f"{sum(group.message_count for group in hidden_groups)} messages"
        else:
            entry = window.entries.get(edit.first)
            if entry is not None and entry.edited_by.get(edit.part) == event.seq:
                yield edit, _describe_part(entry.message.parts[edit.part])


def _describe_part(part: Part) -> str:
    match part:
        case ToolResult():
            return "a tool result"
        case ToolCall():
            return "the arguments of a tool call"
        case Media():
            return f"media of kind {part.kind}"
        case _:
            return "a text"
