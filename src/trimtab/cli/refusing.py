"""One line that says why not."""

from __future__ import annotations

import sys

import typer

from trimtab.cli.words import plain, shown_on


def refused(why: str, *, status: int = 2) -> typer.Exit:
    """Say why not; the exit to raise."""
    typer.echo(shown_on(sys.stderr, f"trimtab: {plain(why)}", "    "), err=True)
    return typer.Exit(status)
