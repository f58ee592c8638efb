"""All commands."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from trimtab.cli.migrate import migrate
from trimtab.cli.replay import replay
from trimtab.cli.session import session

app = typer.Typer(
    name="trimtab",
    help="Decides, before every model call of a long-lived agent, what the model sees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"trimtab {version('trimtab')}")
        raise typer.Exit


@app.callback()
def options(
    _asked: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say it and stop."),
    ] = False,
) -> None:
    """Decides, before every model call of a long-lived agent, what the model sees."""


app.command()(replay)
app.command()(migrate)
app.add_typer(session)
