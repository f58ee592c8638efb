"""A report as HTML, for notebooks: the bar, what fills it, what is hidden, and the cost.

It has no script and no style sheet, because a notebook may remove both. It takes the colours of the
notebook's own text, so it is readable in light and in dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab.engine.prompt.report import ContextReport

MAX_ROWS = 12
"""Sections that the table lists, the largest first."""
COLOUR_BY_KIND = {
    "system": "#8f99ad",
    "summary": "#a261b8",
    "tools": "#4fa57c",
    "messages": "#3f7ddb",
}
"""The colours of the page of `trimtab inspect`."""
NAME_BY_KIND = {
    "system": "system",
    "summary": "summary",
    "tools": "tool output",
    "messages": "messages",
}


def render_report_html(report: ContextReport) -> str:
    """Return the report as a piece of HTML."""
    return (
        '<div style="max-width:46rem;font-family:system-ui,sans-serif;line-height:1.45">'
        f"<div><strong>Context</strong> {report.used:,} of {report.limit:,} tokens "
        f"({report.share:.1%}) · {escape(report.model)}</div>"
        f"{_render_bar(report)}"
        '<table style="border-collapse:collapse;margin:.4em 0">'
        f"{''.join(_render_rows(report))}</table>"
        f"{''.join(f'<div>{escape(line)}</div>' for line in _list_notes(report))}"
        "</div>"
    )


def _render_bar(report: ContextReport) -> str:
    whole = max(report.limit, report.used, 1)
    parts = "".join(
        f'<span title="{NAME_BY_KIND[kind]}: {tokens:,} tokens" '
        f'style="width:{100 * max(0, tokens) / whole:.2f}%;background:{colour}"></span>'
        for kind, colour in COLOUR_BY_KIND.items()
        if (tokens := report.tokens(kind)) > 0
    )
    return (
        '<div style="display:flex;height:14px;margin:.3em 0;border:1px solid rgba(128,128,128,.5);'
        f'border-radius:4px;overflow:hidden">{parts}</div>'
    )


def _render_rows(report: ContextReport) -> Iterator[str]:
    sections = sorted(report.sections, key=lambda section: section.tokens, reverse=True)
    sections = [section for section in sections if section.tokens]
    for section in sections[:MAX_ROWS]:
        colour = COLOUR_BY_KIND.get(section.kind, "#8f99ad")
        yield _render_row(f'<span style="color:{colour}">■</span> ', section.name, section.tokens)
    if rest := sections[MAX_ROWS:]:
        tokens = sum(section.tokens for section in rest)
        yield _render_row("", f"{len(rest)} smaller sections", tokens)
    yield _render_row("", "free", report.free)


def _render_row(mark: str, name: str, tokens: int) -> str:
    return (
        f'<tr><td style="text-align:left;padding:0 1.5em 0 0">{mark}{escape(name)}</td>'
        f'<td style="text-align:right;padding:0">{tokens:,}</td></tr>'
    )


def _list_notes(report: ContextReport) -> Iterator[str]:
    for kind, (count, tokens) in report.hidden.items():
        yield f"hidden by {kind}: {count} ({tokens:,} tokens)"
    if report.cache_hit is not None:
        yield f"read from the provider's cache: {report.cache_hit:.1%} of all input"
    if report.cost is not None and report.total_usage.input:
        yield f"cost so far: {report.describe_cost()}, {report.calls:,} calls"
    yield from (note for note in (report.cache_miss, report.doubt) if note)
