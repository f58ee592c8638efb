"""Show how full the context is and what was hidden last, above the input line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from trimtab.cli.session.display import BAR_LEVEL_COLOURS
from trimtab.cli.text_format import format_age, format_count
from trimtab.engine.prompt.report import BAR_CHARS, ContextReport
from trimtab.session.history import HiddenTotals
from trimtab_serve.agent.config.spec import ThresholdsSpec

BAR_MARGIN_CHARS = 26
"""Characters to the left and right of the bar."""
_EDIT_WORDS = {
    "truncate": ("tool result", "cut"),
    "mask": ("tool result", "replaced by a line"),
    "summarise": ("message", "summarised"),
    "drop": ("message", "dropped"),
    "rejected": ("part", "left out because the provider did not accept it"),
}


def compute_bar_width(console: Console) -> int:
    """Return the width at which the bar fits on its line."""
    return max(8, min(BAR_CHARS, console.width - BAR_MARGIN_CHARS))


def classify_fill_level(report: ContextReport, thresholds: ThresholdsSpec) -> str:
    """Return `normal`, `high` or `critical`, by the thresholds in the agent's file."""
    if report.share > thresholds.trim:
        return "critical"
    return "high" if report.share > thresholds.summarise else "normal"


def show_context_bar(
    report: ContextReport,
    hidden: Sequence[HiddenTotals],
    thresholds: ThresholdsSpec,
    console: Console,
) -> None:
    """Draw the bar in the colour of its fill level, then the cache share and what was hidden."""
    style = BAR_LEVEL_COLOURS[classify_fill_level(report, thresholds)]
    bar = report.draw(compute_bar_width(console))
    console.print(Text(bar, style), no_wrap=True, overflow="ellipsis")
    if report.cache_hit is not None:
        _print_indented(console, f"From the cache: {_describe_cache_share(report)}")
    show_newly_hidden(hidden, console)


def show_context_line(report: ContextReport, thresholds: ThresholdsSpec, console: Console) -> None:
    """Draw one line instead of the bar if little has changed since the bar was drawn."""
    style = BAR_LEVEL_COLOURS[classify_fill_level(report, thresholds)]
    console.print(Text(f"  {report.line()}", style), no_wrap=True, overflow="ellipsis")


def show_newly_hidden(hidden: Sequence[HiddenTotals], console: Console) -> None:
    """Print what was hidden last, and the command that explains it."""
    if hidden:
        _print_indented(
            console,
            f"Hidden {format_age(max(one.at for one in hidden))}: {describe_newly_hidden(hidden)}",
        )


def describe_newly_hidden(hidden: Sequence[HiddenTotals]) -> str:
    """Return, for example, `3 tool results replaced by a line (12,300 tokens) · /why m12.0`."""
    phrases: list[str] = []
    for one in hidden:
        noun, verb = _EDIT_WORDS[one.op]
        phrases.append(
            f"{format_count(one.count, noun)} {verb} ({format_count(one.tokens, 'token')})"
        )
    return f"{', '.join(phrases)} · /why {hidden[-1].handle.partition('-')[0]}"


def _describe_cache_share(report: ContextReport) -> str:
    text = f"{report.cache_hit:.0%} of all input"
    last = report.last_usage
    if last is not None and last.input:
        text += f", {last.cache_read / last.input:.0%} of the last call's"
    return text


def _print_indented(console: Console, text: str) -> None:
    console.print(Padding(Text(text, "dim"), (0, 0, 0, 2)))
