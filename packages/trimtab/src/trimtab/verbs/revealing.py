"""Showing hidden content again, and keeping messages visible."""

from __future__ import annotations

from trimtab.dialects.recall_result import build_recall_result
from trimtab.engine.log.event import Edit, Pin
from trimtab.engine.log.message import Message, Part, ToolCall
from trimtab.engine.recall.tools import (
    answer_recall_call,
    find_recalled_parts_in_window,
    parse_recall_arguments,
    require_known_handle,
)
from trimtab.verbs.adding import add
from trimtab.verbs.state import State, Verb


def reveal(state: State, handle: str) -> Verb[None]:
    """Show hidden content again, with its calls or results, until the model has replied."""
    yield [_build_reveal(state, handle)]


def _build_reveal(state: State, handle: str) -> Edit:
    reference = require_known_handle(state.window, handle)
    return Edit(
        op="reveal",
        first=reference.first_seq,
        last=reference.last_seq,
        part=reference.part_index,
        why="asked",
    )


def pin(state: State, handle: str, *, pinned: bool = True) -> Verb[None]:
    """Keep messages visible whatever the policy decides, or stop doing so."""
    reference = require_known_handle(state.window, handle)
    yield [Pin(first=reference.first_seq, last=reference.last_seq, pinned=pinned)]


def answer(state: State, call: ToolCall, *, adds: bool) -> Verb[str]:
    """Answer the model's call of a recall tool from memory."""
    text = answer_recall_call(state.window, call)
    parts = find_recalled_parts_in_window(state.window, call)
    return (yield from add_answer(state, call, text, parts, adds=adds))


def add_answer(
    state: State,
    call: ToolCall,
    text: str,
    parts: tuple[Message, tuple[Part, ...]] | None,
    *,
    adds: bool,
) -> Verb[str]:
    """Add the result of a recall call, unless the caller adds it. Reveal what it cannot carry."""
    result, reveals = build_recall_result(
        call, text, parts, state.window.settings, text_only=not adds
    )
    edits = [_build_reveal(state, parse_recall_arguments(call)["handle"])] if reveals else []
    if adds:
        # In one batch: the result says that the content is shown again.
        yield from add(state, result, follow=lambda _: edits)
    else:
        yield edits
    return result.results[0].text
