"""All commands."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.cli.lazy import TYPER_SETTINGS, make_lazy_group

TRIMTAB_COMMANDS = {
    "demo": (
        "trimtab.cli.demo:demo_command",
        "Watch a long conversation in a small window. Needs no key.",
    ),
    "init": ("trimtab.cli.init:init_command", "Write a working agent into a folder."),
    "doctor": ("trimtab.cli.doctor:doctor_command", "Check an agent: key, model, window, tools."),
    "models": ("trimtab.cli.models:models_command", "List known models, or explain one."),
    "chat": ("trimtab.cli.chat:chat_command", "Talk to an agent in the terminal."),
    "serve": ("trimtab.cli.serve:serve_command", "Serve agents: HTTP, chat platforms, schedules."),
    "keys": ("trimtab.cli.keys:keys", "Create and revoke the API keys of a server."),
    "schedule": ("trimtab.cli.schedule:schedule", "List, run and pause schedules."),
    "session": (
        "trimtab.cli.session:session",
        "Inspect sessions: what is sent, what is hidden, and why.",
    ),
    "user": (
        "trimtab.cli.users_and_tenants:user",
        "Export or erase all data of a user.",
    ),
    "tenant": ("trimtab.cli.users_and_tenants:tenant", "Export or erase all data of a tenant."),
    "erasures": ("trimtab.cli.users_and_tenants:erasures_command", "List past erasures."),
    "replay": ("trimtab.cli.replay:replay_command", "Compare policies on recorded conversations."),
    "migrate": (
        "trimtab.cli.migrate:migrate_command",
        "Upgrade a PostgreSQL database to this release.",
    ),
    "schema": ("trimtab.cli.schema:print_schema_command", "Print the JSON Schema of agent.yaml."),
}
"""The commands of `trimtab`. Those that a beginner needs come first."""

app = typer.Typer(
    name="trimtab",
    cls=make_lazy_group(TRIMTAB_COMMANDS),
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
