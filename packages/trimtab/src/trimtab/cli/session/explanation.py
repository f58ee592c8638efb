"""Explain why the model sees a message as it does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from rich.console import Console
from rich.text import Text

from trimtab.cli.store_command import require_session_position
from trimtab.cli.text_format import (
    escape_control_characters,
    format_age,
    format_count,
    format_utc_timestamp,
)
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.message import Message
from trimtab.engine.recall.visibility import STATE_DESCRIPTIONS, VisibilityReason
from trimtab.stores.base import Store

MAX_QUOTED_LINES = 30
"""Lines of a text to show. `recall` shows all."""
MAX_PLACEHOLDER_LINES = 8
"""Lines of a placeholder to show."""
MAX_QUOTED_CHARS = 10_000
"""Characters of a text to wrap for showing its beginning."""

_LABEL = re.compile(r"\A\[m\d+ \w+\]\n")
"""The line above a recalled message that names its role."""
_HIDDEN_BY = {
    "truncated": "a truncate edit",
    "masked": "a mask edit",
    "summarised": "a summarise edit",
    "dropped": "a drop edit",
    "listed": "an edit",
    "undone": "a rewind",
    "erased": "an erasure",
}
_SHOWN_INSTEAD = {
    "truncated": "instead of the cut part, the model reads",
    "masked": "the model reads instead",
    "summarised": "the summary",
    "dropped": "the notice",
    "listed": "the model reads there",
}


async def require_first_message_of_handle(store: Store, session: str, handle: str) -> Message:
    """Return the first message of a handle. Raise `LookupError` if there is none."""
    target = parse_handle(handle)
    position = await require_session_position(store, session)
    if not 0 < target.first_seq <= position:
        raise LookupError(f"there is no {handle}: positions go up to m{position}")
    async for event in iterate_message_events(store, session, target.first_seq, target.last_seq):
        message = _message_of(event)
        if target.part_index is not None and target.part_index >= len(message.parts):
            raise LookupError(
                f"there is no {handle}: m{event.seq} has {len(message.parts)} parts, and "
                f"the first is m{event.seq}.0"
            )
        return message
    raise LookupError(
        f"there is no {handle}: event {target.first_seq} is not a message; `trimtab "
        f"session show {session}` lists messages and their handles"
    )


async def iterate_message_events(
    store: Store, session: str, first_seq: int, last_seq: int
) -> AsyncIterator[Event]:
    """Yield the messages between two positions, including undone ones."""
    async for event in store.events(session, [(first_seq, last_seq)]):
        if isinstance(event.body, MessageAdded | ToolResultRepair):
            yield event


def print_visibility_explanation(
    explanation: VisibilityReason, console: Console, recall_hint: str
) -> None:
    """Print the state of a message, when and why it changed, its placeholder and its text."""
    console.print(
        Text(explanation.handle, "bold"),
        Text(f"{STATE_DESCRIPTIONS[explanation.state]}."),
        soft_wrap=True,
    )
    if explanation.event is not None:
        since = (
            f"{format_utc_timestamp(explanation.since)}, {format_age(explanation.since)}"
            if explanation.since is not None
            else ""
        )
        _print_row(console, "since", since)
        _print_row(
            console,
            "by",
            f"event {explanation.event}, {_HIDDEN_BY.get(explanation.state, 'an edit')}",
        )
    if explanation.reason:
        _print_row(console, "reason", explanation.reason)
    if explanation.replacement:
        _print_row(console, _SHOWN_INSTEAD.get(explanation.state, "the model reads"), "")
        _print_quote(console, explanation.replacement, MAX_PLACEHOLDER_LINES, "")
    if explanation.text:
        text = (
            _LABEL.sub("", explanation.text)
            if _names_one_message(explanation.handle)
            else explanation.text
        )
        _print_row(console, f"its text, {format_count(len(text), 'character')}", "")
        _print_quote(console, text, MAX_QUOTED_LINES, recall_hint)


def _names_one_message(handle: str) -> bool:
    """Return whether a handle names one whole message, whose label is not part of its text."""
    target = parse_handle(handle)
    return target.part_index is None and target.first_seq == target.last_seq


def _print_row(console: Console, name: str, text: str) -> None:
    line = Text(f"  {name}: " if text else f"  {name}:", "dim")
    line.append(escape_control_characters(text), "default")
    console.print(line, soft_wrap=True)


def _print_quote(console: Console, text: str, max_lines: int, hint: str) -> None:
    """Print the beginning of a text, in at most `max_lines` lines."""
    room = max(20, console.width - 4)
    pieces = Text(escape_control_characters(text[:MAX_QUOTED_CHARS])).wrap(
        console, room, overflow="fold", tab_size=4
    )
    for piece in pieces[:max_lines]:
        console.print(Text("  │ ") + piece)
    if len(pieces) > max_lines or len(text) > MAX_QUOTED_CHARS:
        console.print(Text(f"  └ and more{hint and f': {hint}'}", "dim"), soft_wrap=True)


def _message_of(event: Event) -> Message:
    assert isinstance(event.body, MessageAdded | ToolResultRepair)  # noqa: S101 - messages() yields nothing else
    return event.body.message
