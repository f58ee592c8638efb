"""A study as a table on the terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from trimtab.replay.columns import best_of, money, seen
from trimtab.replay.study import Study

WIDE = 140
"""Characters of a terminal that shows all columns side by side."""
MORE = "every column, and how it is measured: --notes, or --report FILE"


def show(study: Study, console: Console, *, notes: bool = False) -> None:
    """One setup a row, in one table or in two, and under it what the numbers mean, or in brief."""
    console.print(study.title, style="bold", highlight=False)
    left, right = money(study), seen(study)
    for columns in [[*left, *right]] if console.width >= WIDE else [left, right]:
        made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        made.add_column("setup", no_wrap=True)
        for column in columns:
            heading = f"{column.name}\n{column.unit}".rstrip()
            made.add_column(heading, justify="right", no_wrap=True)
        best = [best_of(column, study) for column in columns]
        for row in study.rows:
            cells = (
                f"[green]{column.text(row)}[/]" if name == row.setup else _plain(column.text(row))
                for column, name in zip(columns, best, strict=True)
            )
            made.add_row(row.setup, *cells)
        console.print(made)
    for line in study.notes() if notes else [*study.brief(), MORE]:
        console.print(Padding(_plain(line), (0, 0, 0, 2)), style="dim", highlight=False)


def _plain(text: str) -> str:
    """An interval's brackets are no markup."""
    return text.replace("[", r"\[")
