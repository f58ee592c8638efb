"""All commands."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.cli.later import LOOK, group

COMMANDS = {
    "demo": ("trimtab.cli.demo:demo", "Watch a long conversation in a small window; no key."),
    "init": ("trimtab.cli.init:init", "Write a working agent into a folder."),
    "doctor": ("trimtab.cli.doctor:doctor", "Check an agent: key, model, window, tools."),
    "chat": ("trimtab.cli.chat:chat", "Talk to an agent in the terminal."),
    "serve": ("trimtab.cli.serve:serve", "Serve agents: HTTP, chat platforms, set times."),
    "keys": ("trimtab.cli.keys:keys", "Make and revoke the API keys of a server."),
    "schedule": ("trimtab.cli.schedule:schedule", "See and steer what happens at set times."),
    "session": (
        "trimtab.cli.sessions:session",
        "Look into sessions: what is sent, hidden, why.",
    ),
    "replay": ("trimtab.cli.replay:replay", "Compare policies on recorded conversations."),
    "migrate": ("trimtab.cli.migrate:migrate", "Bring a PostgreSQL database to this release."),
    "schema": ("trimtab.cli.schema:schema", "Print the JSON Schema of agent.yaml."),
}
"""What `trimtab` can do; the first five minutes come first."""

app = typer.Typer(
    name="trimtab",
    cls=group(COMMANDS),
    no_args_is_help=True,
    **LOOK,
)


def _version(asked: bool) -> None:
    if asked:
        from trimtab.cli.version import build

        typer.echo("\n".join(build()))
        raise typer.Exit


@app.callback()
def options(
    _asked: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Say the version and what is installed, and stop.",
        ),
    ] = False,
) -> None:
    """Decides, before every model call of a long-lived agent, what the model sees.

    New here? `trimtab demo` shows it, `trimtab init` writes an agent, `trimtab chat` talks to it.
    """
