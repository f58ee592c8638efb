"""All commands."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.cli import EXTRAS_BY_COMMAND
from trimtab.cli.extension import find_extension
from trimtab.cli.lazy import TYPER_SETTINGS, make_lazy_group

LIBRARY_COMMANDS = {
    "demo": (
        "trimtab.cli.demo:demo_command",
        "Watch a long conversation in a small window. Needs no key.",
    ),
    "models": ("trimtab.cli.models:models_command", "List known models, or explain one."),
    "session": (
        "trimtab.cli.session:session",
        "Inspect sessions: what is sent, what is hidden, and why.",
    ),
    "inspect": (
        "trimtab.cli.inspect:inspect_command",
        "Show a session in a browser, call by call.",
    ),
    "replay": (
        "trimtab.cli.replay:replay_command",
        "Say what recorded sessions cost.",
    ),
    "hook": (
        "trimtab.cli.hook:hook",
        "Shorten large outputs in an agent that you already run.",
    ),
    "sidecar": (
        "trimtab.cli.sidecar:sidecar_command",
        "Fit the model calls of programs in any language.",
    ),
    "fit": ("trimtab.cli.fit:fit_command", "Fit the body of one model call."),
    "migrate": (
        "trimtab.cli.migrate:migrate_command",
        "Upgrade a PostgreSQL database to this release.",
    ),
}


def list_commands() -> dict[str, tuple[str, str]]:
    """Return the installed commands. Those that a beginner needs come first."""
    extension = find_extension()
    commands = {**LIBRARY_COMMANDS, **(extension.COMMANDS if extension is not None else {})}
    return {name: commands[name] for name in EXTRAS_BY_COMMAND if name in commands}


app = typer.Typer(
    name="trimtab",
    cls=make_lazy_group(list_commands()),
    no_args_is_help=True,
    **TYPER_SETTINGS,
)


def _print_version(asked: bool) -> None:
    if asked:
        from trimtab.cli.installed_packages import describe_installation

        typer.echo("\n".join(describe_installation()))
        raise typer.Exit


@app.callback()
def trimtab_options(
    _asked: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the installed packages, and exit.",
        ),
    ] = False,
) -> None:
    """Decide what the model sees before every model call of a long-lived agent.

    New here? `trimtab demo` shows it, `trimtab init` creates an agent, `trimtab chat` talks to it.
    """
