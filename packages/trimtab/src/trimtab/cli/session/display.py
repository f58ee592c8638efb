"""Print a list of sessions, and one session, on a terminal.

Print one past request: everything that was sent, in its order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.cli.session.view_data import (
    STATE_BY_EDIT,
    CallWithOutcome,
    MessageLine,
    SessionView,
)
from trimtab.cli.text_format import (
    escape_control_characters,
    format_age,
    format_count,
    format_utc_timestamp,
    shorten_to_line,
)
from trimtab.stores.base import SessionListEntry

REPLY_OVERDUE_S = 3_600.0
"""Seconds after which a missing reply is no longer expected."""
MAX_NAMED_HANDLES = 3
"""Handles to name if there are many."""
BAR_LEVEL_COLOURS = {"normal": "green", "high": "yellow", "critical": "red"}
"""Colours of the context bar, by how full it is."""
_STATE_COLOURS = {"shown": "", "truncated": "yellow", "masked": "yellow"}


def print_session_list(sessions: Sequence[SessionListEntry], console: Console) -> None:
    """Print one session per row. Show parents only if there are any."""
    has_forks = any(one.parent for one in sessions)
    table = _make_table()
    table.add_column("session", overflow="fold", style="bold")
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("updated", no_wrap=True)
    if has_forks:
        table.add_column("forked from", overflow="fold")
    for one in sessions:
        row = [
            escape_control_characters(one.session),
            f"{one.position:,}",
            f"{one.messages:,}",
            format_age(one.updated),
        ]
        table.add_row(
            *map(Text, [*row, escape_control_characters(one.parent or "")] if has_forks else row)
        )
    console.print(table)


def print_session_view(view: SessionView, console: Console, hints: Sequence[str]) -> None:
    """Print the context bar, what is hidden, the last messages and the last calls."""
    line = Text(escape_control_characters(view.session), style="bold")
    facts = [
        view.report.model,
        f"policy {view.policy}",
        format_count(view.position, "event"),
        f"last {format_age(view.updated)}",
    ]
    console.print(
        line, Text(f" {escape_control_characters(' · '.join(facts))}", style="dim"), sep=""
    )
    console.print(
        Text(f"\n{view.report}", style=BAR_LEVEL_COLOURS[view.report.level]), no_wrap=True
    )
    _print_hidden(view, console)
    if tools_line := view.report.describe_unused_tools():
        console.print(Text(tools_line))
    print_message_lines(view.lines, console)
    _print_calls(view, console)
    console.print()
    for hint in hints:
        console.print(Text(hint, style="dim"), soft_wrap=True)


def _print_hidden(view: SessionView, console: Console) -> None:
    console.print()
    if not view.report.hidden:
        console.print(
            Text(
                "The model sees all "
                f"{format_count(view.messages_in_force, 'message')}{_undone_note(view)}."
            )
        )
        return
    of = format_count(view.messages_in_force, "message")
    console.print(Text(f"The model sees {view.visible_messages:,} of {of}{_undone_note(view)}."))
    for kind, (count, tokens) in view.report.hidden.items():
        noun = "part" if kind in ("mask", "truncate") else "message"
        summary_line = (
            f"{format_count(count, noun)}, ~{tokens:,} tokens less: "
            f"{_newest_handles(view.report.hidden_handles.get(kind))}"
        )
        console.print(Text(f"  {STATE_BY_EDIT.get(kind, kind):<12}{summary_line.rstrip(': ')}"))
    if view.summary:
        room = max(20, console.width - 14)
        console.print(Text(f"  {'summary':<12}{shorten_to_line(view.summary, room)}"), no_wrap=True)


def _undone_note(view: SessionView) -> str:
    """Return a note on undone messages, which the list of sessions also counts."""
    if not view.undone_messages:
        return ""
    return (
        f"; {view.undone_messages:,} more {'was' if view.undone_messages == 1 else 'were'} undone"
    )


def _newest_handles(handles: Sequence[str] | None) -> str:
    """Return the newest few of many handles."""
    handle_list = list(handles or ())
    return ", ".join(
        handle_list
        if len(handle_list) <= MAX_NAMED_HANDLES
        else ["…", *handle_list[-MAX_NAMED_HANDLES:]]
    )


def print_message_lines(lines: Sequence[MessageLine], console: Console) -> None:
    """Print one row per part of a message."""
    if not lines:
        return
    console.print()
    rows = [_message_cells(line) for line in lines]
    names = ["message", "role", "", "tokens", "text"]
    each = zip(*rows, strict=True)
    wide = [max(map(len, [name, *column])) for name, column in zip(names, each, strict=True)]
    room = max(20, console.width - sum(wide[:4]) - 2 * 4)
    table = _make_table()
    for name in names:
        table.add_column(name, justify="right" if name == "tokens" else "left", no_wrap=True)
    for line, row in zip(lines, rows, strict=True):
        style = _STATE_COLOURS.get(line.state, "dim")
        table.add_row(*(Text(shorten_to_line(cell, room), style) for cell in row))
    console.print(table)


def _message_cells(line: MessageLine) -> list[str]:
    state = "" if line.state == "shown" else line.state
    return [line.handle, line.role, state, f"{line.tokens:,}" if line.tokens else "–", line.text]


def _print_calls(view: SessionView, console: Console) -> None:
    if not view.last_calls:
        console.print(Text("\nNo calls yet."))
        return
    console.print()
    table = _make_table()
    names = (
        ("call", 1),
        ("when", 0),
        ("tools", 1),
        ("took", 1),
        ("estimate", 1),
        ("input", 1),
        ("cached", 1),
        ("output", 1),
    )
    for name, right in names:
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("edits before it", overflow="fold")
    for call in view.last_calls:
        # What was called again, or long ago, has been cut off.
        open_ = call is view.last_calls[-1] and time.time() - call.at < REPLY_OVERDUE_S
        table.add_row(
            *map(Text, _call_cells(call, "no reply yet" if open_ else "no reply: interrupted"))
        )
    console.print(table)
    if view.calls > len(view.last_calls):
        console.print(
            Text(f"the last {len(view.last_calls)} of {format_count(view.calls, 'call')}", "dim")
        )


def _call_cells(call: CallWithOutcome, silence: str) -> list[str]:
    outcome = call.outcome
    usage = outcome.usage if outcome is not None else None
    remarks = [f"{count} {kind}" for kind, count in call.edits.items()]
    if outcome is None:
        remarks.append(silence)
    elif outcome.status == "error":
        remarks.append(
            f"failed: {shorten_to_line(str((outcome.error or {}).get('kind', '?')), 20)}"
        )
    if usage is None:
        figures = ["", "", ""]
    else:
        share = f"{usage.cache_read / usage.input:.0%}" if usage.input else ""
        figures = [f"{usage.input:,}", share, f"{usage.output:,}"]
    return [
        str(call.seq),
        format_age(call.at),
        "" if call.tools_s is None else f"{call.tools_s:,.1f} s",
        "" if call.took_s is None else f"{call.took_s:,.1f} s",
        f"{call.call.tokens:,}",
        *figures,
        ", ".join(remarks),
    ]


def _make_table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)


_SYSTEM_KEYS = ("system", "instructions")
_MESSAGE_KEYS = ("messages", "input")
_TEXT_KEYS = (
    "text",
    "content",
    "thinking",
    "arguments",
    "output",
    "function",
    "input",
    "tool_calls",
)
"""Keys whose values are printed as texts, after the other values of a block."""
MAX_SHOWN_VALUE_CHARS = 2_000
"""Characters of a value within a block to show."""


def print_request(call: CallWithOutcome, request: Mapping[str, Any], console: Console) -> None:
    """Print the figures, then parameters, system prompt, tools and messages in full."""
    _print_request_head(call, console)
    others = {k: v for k, v in request.items() if k not in (*_SYSTEM_KEYS, *_MESSAGE_KEYS, "tools")}
    _print_block(console, "parameters", [_to_short_json(others)])
    for key in _SYSTEM_KEYS:
        if key in request:
            _print_block(console, key, _texts_in(request[key]))
    if tools := cast("list[Mapping[str, Any]]", request.get("tools")):
        _print_block(console, f"tools ({len(tools)})", [_to_short_json(tool) for tool in tools])
    for key in _MESSAGE_KEYS:
        messages: Any = request.get(key, [])
        each = cast("list[Any]", messages if isinstance(messages, list) else [messages])
        for number, message in enumerate(each, 1):
            _print_request_message(console, number, message)


def _print_request_head(past_call: CallWithOutcome, console: Console) -> None:
    call = past_call.call
    outcome = past_call.outcome
    console.print(
        Text(f"call {past_call.seq}", "bold"),
        Text(f"{format_utc_timestamp(past_call.at)}, {format_age(past_call.at)}"),
    )
    verification = (
        f"exactly as sent: rebuilt from the log, SHA-256 {call.hash[:16]}… matches"
        if call.hash
        else "not verified: Trimtab did not render this request, so there is no hash"
    )
    console.print(Text(verification, "green" if call.hash else "yellow"))
    figures = [f"at most {call.bound or call.tokens:,} tokens", f"{call.bytes:,} bytes"]
    if outcome is not None and (usage := outcome.usage) is not None and usage.input:
        figures.append(f"{usage.input:,} reported, {usage.cache_read / usage.input:.0%} cached")
    console.print(Text(" · ".join(figures), "dim"))


def _print_request_message(console: Console, number: int, message: Any) -> None:
    if not isinstance(message, dict):
        _print_block(console, str(number), _texts_in(message))
        return
    wire = cast("dict[str, Any]", message)
    role = str(wire.get("role") or wire.get("type") or "")
    rest = {key: value for key, value in wire.items() if key not in ("role", "content")}
    texts = [*_texts_in(wire.get("content")), *(_texts_in(rest) if rest else ())]
    _print_block(console, f"{number} {role}", texts)


def _print_block(console: Console, title: str, texts: list[str]) -> None:
    console.print()
    console.rule(Text(escape_control_characters(title), "bold"), align="left", style="dim")
    for text in texts:
        console.print(Text(escape_control_characters(text)), soft_wrap=True)


def _texts_in(value: Any) -> list[str]:
    """Return the texts of a value as they are, and its other values as JSON."""
    match value:
        case None | "":
            return []
        case str():
            return [value]
        case list():
            return [text for item in cast("list[Any]", value) for text in _texts_in(item)]
        case dict():
            return list(_texts_in_block(cast("dict[str, Any]", value)))
        case _:
            return [_to_short_json(value)]


def _texts_in_block(block: dict[str, Any]) -> Iterator[str]:
    rest = {key: value for key, value in block.items() if key not in _TEXT_KEYS}
    if rest != {"type": "text"} and rest:
        yield _to_short_json(rest)
    for key in _TEXT_KEYS:
        value = block.get(key)
        if isinstance(value, dict) and key != "function":
            yield _to_short_json(value)
        elif key in block:
            yield from _texts_in(value)


def _to_short_json(value: Any) -> str:
    return json.dumps(_without_long_values(value), ensure_ascii=False)


def _without_long_values(value: Any) -> Any:
    """Shorten long values such as images, which are not readable."""
    match value:
        case str() if len(value) > MAX_SHOWN_VALUE_CHARS:
            return f"{value[:40]}… ({len(value):,} characters; --json has them all)"
        case list():
            return [_without_long_values(item) for item in cast("list[Any]", value)]
        case dict():
            return {
                key: _without_long_values(item)
                for key, item in cast("dict[str, Any]", value).items()
            }
        case _:
            return value
