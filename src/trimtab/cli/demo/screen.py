"""The picture of the demo: the conversation, the window, and every call against what was said."""

from __future__ import annotations

from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trimtab.cli.demo.chart import chart
from trimtab.cli.demo.seen import Hidden, Line, Seen
from trimtab.cli.words import brief
from trimtab.core.ledger import Ledger

SECTIONS = (
    ("System", "system", "magenta"),
    ("Summary", "summary", "yellow"),
    ("Tool output", "tools", "cyan"),
    ("Messages", "messages", "green"),
)
"""Lines of the context display: a name, the ledger's kind, and a colour."""
WHO = {
    "note": ("       ", "dim"),
    "user": ("you    ", "bold"),
    "agent": ("agent  ", "green"),
    "call": ("  →    ", "cyan"),
    "result": ("  ←    ", "dim"),
    "recall": ("  ←    ", "bold yellow"),
    "mark": ("  ★    ", "bold black on yellow"),
}
"""How each kind of line begins, and its style."""
NARROW, LOW = 88, 28
"""Characters and lines below which the frames stand one over the other, with fewer figures."""
LEAST = (80, 20)
"""Characters and lines below which figures are left out."""
SMALL = "A larger terminal shows more: {} by {} or above."
SIDE = 40
"""Characters of the frame on the right."""
NOTE = "* the same calls with all that was said, in a larger window, cache always warm"
TALL = 32
"""Lines of a terminal with room for a higher chart."""
CALLS = "each call: what was sent of what was said"


class Screen:
    """Draws what is seen, as large as the terminal allows."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich asks for it. One line less than there are: what is higher would be cut off."""
        width, height = options.max_width, console.height
        colours = console.color_system is not None
        if width < LEAST[0] or height < LEAST[1]:
            yield from _smallest(self._seen, width, height - 1, colours=colours)
        elif width < NARROW or height < LOW:
            yield from _stacked(self._seen, width, height - 1, colours=colours)
        else:
            yield from _side_by_side(self._seen, width, height - 1, colours=colours)


def _side_by_side(seen: Seen, width: int, height: int, *, colours: bool) -> RenderResult:
    rows = 8 if height >= TALL - 1 else 5
    calls = [*_calls(seen, width - 4, rows, colours=colours), Text(NOTE, "dim")]
    inside = min(16, height - len(calls) - 4)
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(width=SIDE)
    grid.add_row(
        _framed(_title(seen), _talk(seen, width - SIDE - 4, inside), inside + 2),
        _framed("context", _context(seen, SIDE - 4), inside + 2),
    )
    yield from (grid, _framed(CALLS, Group(*calls)))


def _stacked(seen: Seen, width: int, height: int, *, colours: bool) -> RenderResult:
    rows = 8 if height >= TALL - 1 else 5 if height > 20 else 4
    calls = _calls(seen, width - 4, rows, colours=colours)
    context = _context_brief(seen, width - 4)
    inside = min(16, height - len(calls) - len(context) - 6)
    yield _framed(_title(seen), _talk(seen, width - 4, inside), inside + 2)
    yield _framed("context", Group(*context), len(context) + 2)
    yield _framed(CALLS, Group(*calls))


def _smallest(seen: Seen, width: int, height: int, *, colours: bool) -> RenderResult:
    """The chart before all else; the conversation where there is room for a few lines of it."""
    calls = _calls(seen, width - 4, max(2, min(5, height - 5)), colours=colours)
    inside = min(16, height - len(calls) - 5)
    if inside > 1:
        yield _framed(_title(seen), _talk(seen, width - 4, inside), inside + 2)
    yield _framed(CALLS, Group(*calls))
    yield _cut(Text(SMALL.format(*LEAST), "yellow"))


def _cut(text: Text) -> Text:
    """One line, whatever the width."""
    text.no_wrap, text.overflow = True, "ellipsis"
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


def _title(seen: Seen) -> str:
    if not seen.turn:
        return "conversation · about to begin"
    return f"conversation · turn {seen.turn} of {seen.turns}"


def _talk(seen: Seen, width: int, height: int) -> Text:
    """The newest lines; the reply that is being written comes last."""
    lines = [*seen.lines, *([Line(who="agent", text=seen.said)] if seen.said else [])]
    shown: list[Text] = []
    for line in lines[-height:]:
        start, style = WHO[line.who]
        if line.who not in ("call", "result"):
            told = " / ".join(" ".join(row.split()) for row in line.text.splitlines())
            shown += _wrapped(start, told, style, width)
        else:
            shown.append(Text(start + brief(line.text, width - len(start)), style))
    return Text("\n").join(shown[-height:])


def _wrapped(start: str, text: str, style: str, width: int) -> list[Text]:
    room, rows = width - len(start), [""]
    for word in text.split(" "):
        if len(rows[-1]) + len(word) + 1 > room and rows[-1]:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    before = [start, *[" " * len(start)] * (len(rows) - 1)]
    return [Text(one + row, style) for one, row in zip(before, rows, strict=True)]


def _context(seen: Seen, width: int) -> RenderableType:
    ledger = seen.ledger
    if ledger is None:
        return Text("starting the simulated provider …", "dim")
    rows = Table.grid(expand=True)
    rows.add_column(ratio=1)
    rows.add_column(justify="right")
    for name, kind, colour in SECTIONS:
        tokens = ledger.tokens(kind)
        if tokens or kind != "summary":
            rows.add_row(Text.assemble(("■ ", colour), name), f"{tokens:,}")
    rows.add_row(Text.assemble(("■ ", "bright_black"), "Free"), f"{ledger.limit - ledger.used:,}")
    rows.add_row("", "")
    for name, value, style in _figures(seen, ledger):
        rows.add_row(Text(name, "dim"), Text(value, style))
    return Group(_bar(ledger, width), rows)


def _context_brief(seen: Seen, width: int) -> list[Text]:
    """The same in four lines."""
    ledger = seen.ledger
    if ledger is None:
        return [Text("starting the simulated provider …", "dim"), *[Text()] * 3]
    parts = [
        Text.assemble(("■ ", colour), f"{name} {ledger.tokens(kind):,}")
        for name, kind, colour in SECTIONS
        if ledger.tokens(kind) or kind != "summary"
    ]
    figures = {
        name: Text.assemble((f"{name.removesuffix('*')}: ", "dim"), (value, style))
        for name, value, style in _figures(seen, ledger)
    }
    first = ("hidden, recallable", "recalled by the agent")
    second = ("cost so far", "everything, computed*", "requests refused")
    below = [Text(" · ", "dim").join(figures[name] for name in names) for names in (first, second)]
    return [_bar(ledger, width), *(_cut(line) for line in (Text("  ").join(parts), *below))]


def _bar(ledger: Ledger, width: int) -> Text:
    used = f" {ledger.share:.0%}"
    room = width - len(used)
    bar = Text()
    taken = 0
    for _, kind, colour in SECTIONS:
        cells = round(ledger.tokens(kind) / ledger.limit * room)
        cells = min(room - taken, max(cells, 1 if ledger.tokens(kind) else 0))
        bar.append("█" * cells, colour)
        taken += cells
    bar.append("░" * (room - taken), "bright_black")
    return bar.append(used, "bold")


def _figures(seen: Seen, ledger: Ledger) -> list[tuple[str, str, str]]:
    hit = "–" if ledger.cache_hit is None else f"{ledger.cache_hit:.0%}"
    return [
        ("policy", seen.policy, ""),
        ("hidden, recallable", f"{seen.hiding:,} tokens", ""),
        ("recalled by the agent", seen.recalled or "–", "bold yellow" if seen.recalled else ""),
        ("read from the cache", hit, ""),
        ("cost so far", f"${seen.cost:.3f}", "green"),
        ("everything, computed*", f"${seen.whole_cost:.3f}", "red"),
        ("requests refused", str(seen.refused), "green" if not seen.refused else "bold red"),
    ]


def _calls(seen: Seen, width: int, rows: int, *, colours: bool) -> list[Text]:
    drawn = chart(seen, width, rows, colours=colours)
    return [_cut(line) for line in (*drawn, _last(seen.hidden[-1] if seen.hidden else None))]


def _last(hidden: Hidden | None) -> Text:
    if hidden is None:
        return Text("nothing is hidden yet", "dim")
    return Text.assemble(
        ("hidden last: ", "dim"),
        f"{hidden.what}, {hidden.how}, {hidden.tokens:,} tokens · ",
        (f"recall {hidden.handle}", "bold"),
    )
