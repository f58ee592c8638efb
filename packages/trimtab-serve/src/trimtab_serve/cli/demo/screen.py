"""Draw model calls as columns: what was sent, what stayed hidden, and the size of the window.

Draw the demo's screen: the conversation, the context, and every call.
"""

from __future__ import annotations

from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trimtab.cli.text_format import shorten_to_line
from trimtab.engine.prompt.report import ContextReport
from trimtab_serve.cli.demo.state import DemoCallTokens, DemoEdit, DemoLine, DemoState

LABEL_CHARS = 8
"""Characters before a row of the chart."""
WINDOW_LABEL = "┄ window"
"""The label at the end of the line that marks the window."""
SENT_COLOUR = "cyan"
HIDDEN_COLOUR = "grey35"
EDGE_COLOUR = "red"
_STEPS = " ▁▂▃▄▅▆▇█"


def draw_call_chart(state: DemoState, width: int, rows: int, *, colours: bool) -> list[Text]:
    """Return the rows from top to bottom: a column for each call, and the window as a line."""
    room = width - LABEL_CHARS
    # The newest calls, with room for the word behind the line.
    wide = max(1, min(2, (room - len(WINDOW_LABEL)) // max(1, len(state.calls))))
    calls = state.calls[-max(1, (room - len(WINDOW_LABEL)) // wide) :]
    top = max([state.window * 1.25, *(call.full_tokens for call in calls)])
    step = top / rows
    edge = rows - 1 - int(state.window / step)
    lines: list[Text] = []
    for row in range(rows):
        line = Text(_label(row, edge, top, state.window), EDGE_COLOUR if row == edge else "dim")
        for call in calls:
            cell, style = _cell(call, (rows - 1 - row) * step, step, at_edge=row == edge)
            line.append(cell if colours or style != HIDDEN_COLOUR else "░", style)
            if wide > 1:
                line.append("┄" if row == edge else " ", EDGE_COLOUR)
        if row == edge:
            line.append(
                "┄" * max(0, room - wide * len(calls) - len(WINDOW_LABEL) + 1) + WINDOW_LABEL[1:],
                EDGE_COLOUR,
            )
        lines.append(line)
    return [*lines, _legend(state, "█" if colours else "░")]


def _label(row: int, edge: int, top: float, window: int) -> str:
    if row == edge:
        return f"{window / 1_000:>5.0f}k ┄"
    return f"{top / 1_000:>5.0f}k  " if row == 0 else " " * LABEL_CHARS


def _cell(call: DemoCallTokens, floor: float, step: float, *, at_edge: bool) -> tuple[str, str]:
    """Return one character that shows how far the call fills the row, in eighths."""
    sent_eighths = _eighths(call.sent_tokens, floor, step)
    whole = _eighths(call.full_tokens, floor, step)
    if whole == 8 and 0 < sent_eighths < 8:
        return _STEPS[sent_eighths], f"{SENT_COLOUR} on {HIDDEN_COLOUR}"
    if sent_eighths:
        # One character has two colours: what is above both stays empty.
        return _STEPS[sent_eighths], SENT_COLOUR
    if whole:
        return _STEPS[whole], HIDDEN_COLOUR
    return ("┄", EDGE_COLOUR) if at_edge else (" ", "")


def _eighths(tokens: int, floor: float, step: float) -> int:
    return max(0, min(8, round((tokens - floor) / step * 8)))


def _legend(state: DemoState, hidden: str) -> Text:
    return Text.assemble(
        " " * LABEL_CHARS,
        ("█ ", SENT_COLOUR),
        f"sent: {state.sent_tokens:,} tokens in {len(state.calls)} calls   ",
        (f"{hidden} ", HIDDEN_COLOUR),
        f"not sent: {max(0, state.full_tokens - state.sent_tokens):,}",
    )


CONTEXT_SECTIONS = (
    ("System", "system", "magenta"),
    ("Summary", "summary", "yellow"),
    ("Tool output", "tools", "cyan"),
    ("Messages", "messages", "green"),
)
"""Lines of the context display: a name, a kind of the report's sections, and a colour."""
LINE_STYLES = {
    "note": ("       ", "dim"),
    "user": ("you    ", "bold"),
    "agent": ("agent  ", "green"),
    "call": ("  →    ", "cyan"),
    "result": ("  ←    ", "dim"),
    "recall": ("  ←    ", "bold yellow"),
    "mark": ("  ★    ", "bold black on yellow"),
}
"""The prefix of each kind of line, and its style."""
STACKED_BELOW_CHARS = 88
STACKED_BELOW_LINES = 28
"""Below this width or height the panels are stacked and show fewer figures."""
MIN_TERMINAL_SIZE = (80, 20)
"""Below this width or height the figures are left out."""
TOO_SMALL_NOTE = "A larger terminal shows more: at least {} by {}."
SIDE_PANEL_CHARS = 40
"""Width of the right panel in characters."""
COST_NOTE = "* the same calls with the whole conversation, a larger window and a warm cache"
TALL_TERMINAL_LINES = 32
"""Lines of a terminal with room for a taller chart."""
CALLS_TITLE = "each call: tokens sent and not sent"


class DemoScreen:
    """Draws the demo as large as the terminal allows."""

    def __init__(self, state: DemoState) -> None:
        self._seen = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for rich, one line below the terminal's height so that nothing is cut off."""
        width = options.max_width
        height = console.height
        colours = console.color_system is not None
        if width < MIN_TERMINAL_SIZE[0] or height < MIN_TERMINAL_SIZE[1]:
            yield from _smallest(self._seen, width, height - 1, colours=colours)
        elif width < STACKED_BELOW_CHARS or height < STACKED_BELOW_LINES:
            yield from _stacked(self._seen, width, height - 1, colours=colours)
        else:
            yield from _side_by_side(self._seen, width, height - 1, colours=colours)


def _side_by_side(state: DemoState, width: int, height: int, *, colours: bool) -> RenderResult:
    rows = 8 if height >= TALL_TERMINAL_LINES - 1 else 5
    calls = [*_call_lines(state, width - 4, rows, colours=colours), Text(COST_NOTE, "dim")]
    inside = min(16, height - len(calls) - 4)
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(width=SIDE_PANEL_CHARS)
    grid.add_row(
        _framed(
            _title(state),
            _conversation_text(state, width - SIDE_PANEL_CHARS - 4, inside),
            inside + 2,
        ),
        _framed("context", _context_panel(state, SIDE_PANEL_CHARS - 4), inside + 2),
    )
    yield from (grid, _framed(CALLS_TITLE, Group(*calls)))


def _stacked(state: DemoState, width: int, height: int, *, colours: bool) -> RenderResult:
    rows = 8 if height >= TALL_TERMINAL_LINES - 1 else 5 if height > 20 else 4
    calls = _call_lines(state, width - 4, rows, colours=colours)
    context = _context_lines(state, width - 4)
    inside = min(16, height - len(calls) - len(context) - 6)
    yield _framed(_title(state), _conversation_text(state, width - 4, inside), inside + 2)
    yield _framed("context", Group(*context), len(context) + 2)
    yield _framed(CALLS_TITLE, Group(*calls))


def _smallest(state: DemoState, width: int, height: int, *, colours: bool) -> RenderResult:
    """Draw the chart first, and the conversation if there is room for a few lines of it."""
    calls = _call_lines(state, width - 4, max(2, min(5, height - 5)), colours=colours)
    inside = min(16, height - len(calls) - 5)
    if inside > 1:
        yield _framed(_title(state), _conversation_text(state, width - 4, inside), inside + 2)
    yield _framed(CALLS_TITLE, Group(*calls))
    yield _on_one_line(Text(TOO_SMALL_NOTE.format(*MIN_TERMINAL_SIZE), "yellow"))


def _on_one_line(text: Text) -> Text:
    """Keep a text on one line at any width."""
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def _framed(title: str, inside: RenderableType, height: int | None = None) -> Panel:
    return Panel(
        inside,
        title=Text(title, "bold"),
        title_align="left",
        border_style="bright_black",
        box=ROUNDED,
        height=height,
    )


def _title(state: DemoState) -> str:
    if not state.turn:
        return "conversation · starting"
    return f"conversation · turn {state.turn} of {state.turns}"


def _conversation_text(state: DemoState, width: int, height: int) -> Text:
    """Return the newest lines. The reply that is being written comes last."""
    lines = [
        *state.lines,
        *([DemoLine(kind="agent", text=state.partial_reply)] if state.partial_reply else []),
    ]
    rows: list[Text] = []
    for line in lines[-height:]:
        start, style = LINE_STYLES[line.kind]
        if line.kind not in ("call", "result"):
            one_line = " / ".join(" ".join(row.split()) for row in line.text.splitlines())
            rows += _wrapped(start, one_line, style, width)
        else:
            rows.append(Text(start + shorten_to_line(line.text, width - len(start)), style))
    return Text("\n").join(rows[-height:])


def _wrapped(start: str, text: str, style: str, width: int) -> list[Text]:
    room = width - len(start)
    rows = [""]
    for word in text.split(" "):
        if len(rows[-1]) + len(word) + 1 > room and rows[-1]:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    before = [start, *[" " * len(start)] * (len(rows) - 1)]
    return [Text(one + row, style) for one, row in zip(before, rows, strict=True)]


def _context_panel(state: DemoState, width: int) -> RenderableType:
    ledger = state.report
    if ledger is None:
        return Text("starting the simulated provider …", "dim")
    rows = Table.grid(expand=True)
    rows.add_column(ratio=1)
    rows.add_column(justify="right")
    for name, kind, colour in CONTEXT_SECTIONS:
        tokens = ledger.tokens(kind)
        if tokens or kind != "summary":
            rows.add_row(Text.assemble(("■ ", colour), name), f"{tokens:,}")
    rows.add_row(Text.assemble(("■ ", "bright_black"), "Free"), f"{ledger.limit - ledger.used:,}")
    rows.add_row("", "")
    for name, value, style in _figures(state, ledger):
        rows.add_row(Text(name, "dim"), Text(value, style))
    return Group(_bar(ledger, width), rows)


def _context_lines(state: DemoState, width: int) -> list[Text]:
    """Return the context panel in four lines."""
    ledger = state.report
    if ledger is None:
        return [Text("starting the simulated provider …", "dim"), *[Text()] * 3]
    parts = [
        Text.assemble(("■ ", colour), f"{name} {ledger.tokens(kind):,}")
        for name, kind, colour in CONTEXT_SECTIONS
        if ledger.tokens(kind) or kind != "summary"
    ]
    figures = {
        name: Text.assemble((f"{name.removesuffix('*')}: ", "dim"), (value, style))
        for name, value, style in _figures(state, ledger)
    }
    first = ("hidden, recallable", "recalled by the agent")
    second = ("cost so far", "everything, computed*", "requests refused")
    below = [Text(" · ", "dim").join(figures[name] for name in names) for names in (first, second)]
    return [_bar(ledger, width), *(_on_one_line(line) for line in (Text("  ").join(parts), *below))]


def _bar(report: ContextReport, width: int) -> Text:
    share_text = f" {report.share:.0%}"
    room = width - len(share_text)
    bar = Text()
    filled_cells = 0
    for _, kind, colour in CONTEXT_SECTIONS:
        cells = round(report.tokens(kind) / report.limit * room)
        cells = min(room - filled_cells, max(cells, 1 if report.tokens(kind) else 0))
        bar.append("█" * cells, colour)
        filled_cells += cells
    bar.append("░" * (room - filled_cells), "bright_black")
    return bar.append(share_text, "bold")


def _figures(state: DemoState, report: ContextReport) -> list[tuple[str, str, str]]:
    hit = "–" if report.cache_hit is None else f"{report.cache_hit:.0%}"
    return [
        ("policy", state.policy, ""),
        ("hidden, recallable", f"{state.hidden_tokens:,} tokens", ""),
        (
            "recalled by the agent",
            state.recalled_handle or "–",
            "bold yellow" if state.recalled_handle else "",
        ),
        ("read from the cache", hit, ""),
        ("cost so far", f"${state.cost:.3f}", "green"),
        ("everything, computed*", f"${state.full_cost:.3f}", "red"),
        (
            "requests refused",
            str(state.refused_requests),
            "green" if not state.refused_requests else "bold red",
        ),
    ]


def _call_lines(state: DemoState, width: int, rows: int, *, colours: bool) -> list[Text]:
    chart = draw_call_chart(state, width, rows, colours=colours)
    return [
        _on_one_line(line)
        for line in (*chart, _newest_edit_line(state.edits[-1] if state.edits else None))
    ]


def _newest_edit_line(hidden: DemoEdit | None) -> Text:
    if hidden is None:
        return Text("nothing is hidden yet", "dim")
    return Text.assemble(
        ("hidden last: ", "dim"),
        f"{hidden.subject}, {hidden.result_word}, {hidden.tokens:,} tokens · ",
        (f"recall {hidden.handle}", "bold"),
    )
