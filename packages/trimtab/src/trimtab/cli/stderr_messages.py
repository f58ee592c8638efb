"""One line on standard error: an error, or a warning."""

from __future__ import annotations

import sys

import typer

from trimtab.cli.text_format import escape_control_characters, wrap_for_terminal


def print_error_for_exit(message: str, *, exit_status: int = 2) -> typer.Exit:
    """Print why the command failed, and return the exit to raise."""
    typer.echo(
        wrap_for_terminal(sys.stderr, f"trimtab: {escape_control_characters(message)}", "    "),
        err=True,
    )
    return typer.Exit(exit_status)


def warn_about_typed_password(
    context: typer.Context, option: str, address: str, *, variable: str
) -> None:
    """Warn about a password on the command line: `ps` shows it to everybody while it runs."""
    # Stores load slowly, and most errors do not come from one.
    from trimtab.stores.factory import contains_database_password

    source = context.get_parameter_source(option)
    if source is not None and source.name == "COMMANDLINE" and contains_database_password(address):
        warning = (
            f"trimtab: every program on this machine can see the password in --{option} while this "
            f"command runs; put the address into the variable {variable}"
        )
        typer.echo(wrap_for_terminal(sys.stderr, warning, "    "), err=True)
