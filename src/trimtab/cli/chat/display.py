"""How full the context is, and what was hidden last, before the next line is typed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from trimtab.agent.spec import Thresholds
from trimtab.cli.session_show import LEVELS
from trimtab.cli.words import age, counted
from trimtab.core.ledger import BAR, Ledger
from trimtab.session.hiding import Hiding

BESIDE = 26
"""Characters that stand beside the bar."""
_DONE = {
    "truncate": ("tool result", "cut"),
    "mask": ("tool result", "replaced by a line"),
    "summarise": ("message", "summarised"),
    "drop": ("message", "dropped"),
    "rejected": ("part", "left out, for the provider did not take it"),
}


def bar_width(console: Console) -> int:
    """Characters of the bar that leave its line whole."""
    return max(8, min(BAR, console.width - BESIDE))


def level_of(ledger: Ledger, thresholds: Thresholds) -> str:
    """`normal`, `high` or `critical`, by the thresholds of the agent's file."""
    if ledger.share > thresholds.trim:
        return "critical"
    return "high" if ledger.share > thresholds.summarise else "normal"


def show_context(
    ledger: Ledger, hidden: Sequence[Hiding], thresholds: Thresholds, console: Console
) -> None:
    """The bar, coloured by how full the window is; under it the cache and what was hidden."""
    style = LEVELS[level_of(ledger, thresholds)]
    drawn = ledger.drawn(bar_width(console))
    console.print(Text(drawn, style), no_wrap=True, overflow="ellipsis")
    if ledger.cache_hit is not None:
        _line(console, f"From the cache: {_cache(ledger)}")
    show_hidden(hidden, console)


def show_line(ledger: Ledger, thresholds: Thresholds, console: Console) -> None:
    """The same on one line, where little has changed since the bar was drawn."""
    style = LEVELS[level_of(ledger, thresholds)]
    console.print(Text(f"  {ledger.line()}", style), no_wrap=True, overflow="ellipsis")


def show_hidden(hidden: Sequence[Hiding], console: Console) -> None:
    """What was hidden last, and how it is looked up."""
    if hidden:
        _line(console, f"Hidden {age(max(one.at for one in hidden))}: {hidden_words(hidden)}")


def hidden_words(hidden: Sequence[Hiding]) -> str:
    """`3 tool results replaced by a line (12,300 tokens) · /why m12.0`."""
    told: list[str] = []
    for one in hidden:
        noun, done = _DONE[one.op]
        told.append(f"{counted(one.count, noun)} {done} ({counted(one.tokens, 'token')})")
    return f"{', '.join(told)} · /why {hidden[-1].handle.partition('-')[0]}"


def _cache(ledger: Ledger) -> str:
    told = f"{ledger.cache_hit:.0%} of all input"
    last = ledger.last_usage
    if last is not None and last.input:
        told += f", {last.cache_read / last.input:.0%} of the last call's"
    return told


def _line(console: Console, text: str) -> None:
    console.print(Padding(Text(text, "dim"), (0, 0, 0, 2)))
