"""One line that says why not, or what to do better."""

from __future__ import annotations

import sys

import typer

from trimtab.cli.words import plain, shown_on


def refused(why: str, *, status: int = 2) -> typer.Exit:
    """Say why not; the exit to raise."""
    typer.echo(shown_on(sys.stderr, f"trimtab: {plain(why)}", "    "), err=True)
    return typer.Exit(status)


def warn_of_password(context: typer.Context, option: str, place: str, *, instead: str) -> None:
    """Say that a password was typed: while a command runs, `ps` shows everybody its arguments."""
    # Stores take a while to import, and most who refuse something know of none.
    from trimtab.stores.choose import holds_password

    source = context.get_parameter_source(option)
    if source is not None and source.name == "COMMANDLINE" and holds_password(place):
        told = (
            f"trimtab: every program on this machine can see the password in --{option} while this "
            f"command runs; put the address into the variable {instead}"
        )
        typer.echo(shown_on(sys.stderr, told, "    "), err=True)
