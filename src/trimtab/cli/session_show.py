"""A list of sessions, and one session, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.cli.session_calls import Made
from trimtab.cli.session_view import STATES, Line, View
from trimtab.cli.words import age, brief, counted, plain
from trimtab.stores.store import Stored

LATE = 3_600.0
"""Seconds after which no reply comes any more."""
FEW = 3
"""Handles that are named where there are many."""
LEVELS = {"normal": "green", "high": "yellow", "critical": "red"}
"""Colours of the context bar, by how full it is."""
_COLOURS = {"shown": "", "truncated": "yellow", "masked": "yellow"}


def show_list(found: Sequence[Stored], console: Console) -> None:
    """One session a row; parents only where there are any."""
    forked = any(one.parent for one in found)
    table = _table()
    table.add_column("session", overflow="fold", style="bold")
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("updated", no_wrap=True)
    if forked:
        table.add_column("forked from", overflow="fold")
    for one in found:
        row = [plain(one.session), f"{one.position:,}", f"{one.messages:,}", age(one.updated)]
        table.add_row(*map(Text, [*row, plain(one.parent or "")] if forked else row))
    console.print(table)


def show_view(view: View, console: Console, hints: Sequence[str]) -> None:
    """The context bar, what is hidden, the last messages and the last calls."""
    line = Text(plain(view.session), style="bold")
    said = [
        view.report.model,
        f"policy {view.policy}",
        counted(view.position, "event"),
        f"last {age(view.updated)}",
    ]
    console.print(line, Text(f" {plain(' · '.join(said))}", style="dim"), sep="")
    console.print(Text(f"\n{view.report}", style=LEVELS[view.report.level]), no_wrap=True)
    _show_hidden(view, console)
    show_messages(view.lines, console)
    _show_calls(view, console)
    console.print()
    for hint in hints:
        console.print(Text(hint, style="dim"), soft_wrap=True)


def _show_hidden(view: View, console: Console) -> None:
    console.print()
    if not view.report.hidden:
        console.print(Text(f"The model sees all {counted(view.said, 'message')}{_undone(view)}."))
        return
    of = counted(view.said, "message")
    console.print(Text(f"The model sees {view.messages:,} of {of}{_undone(view)}."))
    for kind, (count, tokens) in view.report.hidden.items():
        noun = "part" if kind in ("mask", "truncate") else "message"
        told = f"{counted(count, noun)}, ~{tokens:,} tokens less: {_some(view.hidden.get(kind))}"
        console.print(Text(f"  {STATES.get(kind, kind):<12}{told.rstrip(': ')}"))
    if view.summary:
        room = max(20, console.width - 14)
        console.print(Text(f"  {'summary':<12}{brief(view.summary, room)}"), no_wrap=True)


def _undone(view: View) -> str:
    """What the list of sessions counts as well."""
    if not view.undone:
        return ""
    return f"; {view.undone:,} more {'was' if view.undone == 1 else 'were'} undone"


def _some(handles: Sequence[str] | None) -> str:
    """The newest few of many."""
    named = list(handles or ())
    return ", ".join(named if len(named) <= FEW else ["…", *named[-FEW:]])


def show_messages(lines: Sequence[Line], console: Console) -> None:
    """One part of a message a row."""
    if not lines:
        return
    console.print()
    rows = [_message(line) for line in lines]
    names = ["message", "role", "", "tokens", "text"]
    each = zip(*rows, strict=True)
    wide = [max(map(len, [name, *column])) for name, column in zip(names, each, strict=True)]
    room = max(20, console.width - sum(wide[:4]) - 2 * 4)
    table = _table()
    for name in names:
        table.add_column(name, justify="right" if name == "tokens" else "left", no_wrap=True)
    for line, row in zip(lines, rows, strict=True):
        style = _COLOURS.get(line.state, "dim")
        table.add_row(*(Text(brief(cell, room), style) for cell in row))
    console.print(table)


def _message(line: Line) -> list[str]:
    state = "" if line.state == "shown" else line.state
    return [line.handle, line.role, state, f"{line.tokens:,}" if line.tokens else "–", line.text]


def _show_calls(view: View, console: Console) -> None:
    if not view.newest:
        console.print(Text("\nNo call was made yet."))
        return
    console.print()
    table = _table()
    names = (("call", 1), ("when", 0), ("estimate", 1), ("input", 1), ("cached", 1), ("output", 1))
    for name, right in names:
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("edits before it", overflow="fold")
    for made in view.newest:
        # What was called again, or long ago, has been cut off.
        open_ = made is view.newest[-1] and time.time() - made.at < LATE
        table.add_row(*map(Text, _call(made, "no reply yet" if open_ else "no reply: cut off")))
    console.print(table)
    if view.calls > len(view.newest):
        console.print(Text(f"the last {len(view.newest)} of {counted(view.calls, 'call')}", "dim"))


def _call(made: Made, silence: str) -> list[str]:
    outcome = made.outcome
    usage = outcome.usage if outcome is not None else None
    told = [f"{count} {kind}" for kind, count in made.edits.items()]
    if outcome is None:
        told.append(silence)
    elif outcome.status == "error":
        told.append(f"failed: {brief(str((outcome.error or {}).get('kind', '?')), 20)}")
    if usage is None:
        figures = ["", "", ""]
    else:
        share = f"{usage.cache_read / usage.input:.0%}" if usage.input else ""
        figures = [f"{usage.input:,}", share, f"{usage.output:,}"]
    return [str(made.seq), age(made.at), f"{made.call.tokens:,}", *figures, ", ".join(told)]


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
