"""`trimtab keys`: who may ask a server. The keys themselves are shown once and kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.lazy import TYPER_SETTINGS

FileOption = Annotated[
    Path, typer.Option("--file", help="The file of keys, `serve.keys` in agent.yaml.")
]
KeysJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")]
DEFAULT_KEYS_PATH = Path("keys.json")

keys = typer.Typer(name="keys", no_args_is_help=True, add_completion=False, **TYPER_SETTINGS)


@keys.callback()
def keys_options() -> None:
    """Make and revoke API keys of `trimtab serve`; a server that runs sees it at once."""


@keys.command()
def create(  # noqa: PLR0917 - typer reads options from parameters
    name: NameArgument,
    tenant: Annotated[str, typer.Option(help="Whose sessions it opens.")] = "default",
    agent: Annotated[
        list[str] | None,
        typer.Option(help="An agent that it may use; can be repeated. Unset, all."),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics",
            help="Let it read /metrics, which counts all tenants, and nothing else: no sessions.",
        ),
    ] = False,
    file: FileOption = DEFAULT_KEYS_PATH,
    as_json: KeysJsonOption = False,
) -> None:
    """Make a key and print it, once; only its hash is kept."""
    from trimtab.cli.store_command import report_known_errors
    from trimtab.server.channels.http.api_keys import (
        create_api_key,
        read_stored_api_keys,
        write_key_file,
    )

    with report_known_errors():
        known = read_stored_api_keys(file) if file.exists() else []
        if any(key.name == name for key in known):
            raise ValueError(
                f"{file} has a key called {name} already; to replace it, create one of another "
                "name, let its users change over, then revoke this one"
            )
        text, kept = create_api_key(
            name, tenant=tenant, agents=tuple(agent) if agent else None, metrics=metrics
        )
        write_key_file(file, [*known, kept])
    if as_json:
        owner = None if metrics else tenant
        typer.echo(json.dumps({"name": name, "tenant": owner, "metrics": metrics, "key": text}))
        return
    what = "reads /metrics and nothing else" if metrics else f"opens sessions of tenant {tenant}"
    typer.echo(text)
    typer.echo(
        f"\nThe key {name} {what}. It is shown this once: {file} keeps its "
        f"hash.\nServe with it: write `keys: {file}` under `serve` in agent.yaml.\nUse it: curl "
        '-H "Authorization: Bearer KEY" …',
        err=True,
    )


@keys.command("list")
def list_api_keys(file: FileOption = DEFAULT_KEYS_PATH, as_json: KeysJsonOption = False) -> None:
    """List the keys of a file: their names, what they open, tenants and agents."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.store_command import make_output_console, report_known_errors
    from trimtab.cli.terminal_text_format import escape_control_characters, format_age
    from trimtab.server.channels.http.api_keys import read_stored_api_keys

    with report_known_errors():
        found = read_stored_api_keys(file)
    if as_json:
        rows = [
            {
                "name": key.name,
                "tenant": None if key.metrics else key.tenant,
                "agents": list(key.agents) if key.agents is not None else None,
                "metrics": key.metrics,
                "narrowed": key.narrowed,
                "created": key.created,
            }
            for key in found
        ]
        typer.echo(json.dumps(rows))
        return
    if not found:
        typer.echo(f"no keys in {file} yet; make one: trimtab keys create NAME", err=True)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("key", "opens", "tenant", "agents", "made"):
        table.add_column(title)
    for key in found:
        agents = "all" if key.agents is None else ", ".join(key.agents)
        cells = (key.name, "sessions", key.tenant, agents, format_age(key.created))
        if key.metrics:
            cells = (key.name, "metrics only", "–", "–", format_age(key.created))
        table.add_row(*(Text(escape_control_characters(cell)) for cell in cells))
    make_output_console().print(table)
    for key in found:
        if key.narrowed:
            typer.echo(
                f"{key.name} opened sessions of tenant {key.tenant} as well when it was made, and "
                "does no longer; for sessions make another one: trimtab keys create NAME",
                err=True,
            )


@keys.command()
def revoke(name: NameArgument, file: FileOption = DEFAULT_KEYS_PATH) -> None:
    """Revoke a key; whoever uses it is refused from now on."""
    from trimtab.cli.store_command import report_known_errors
    from trimtab.cli.terminal_text_format import join_names
    from trimtab.server.channels.http.api_keys import read_stored_api_keys, write_key_file

    with report_known_errors():
        known = read_stored_api_keys(file)
        left = [key for key in known if key.name != name]
        if len(left) == len(known):
            there = join_names([key.name for key in known]) or "none"
            raise LookupError(f"{file} has no key called {name}; there is {there}")
        write_key_file(file, left)
    typer.echo(f"revoked {name}; a server that runs refuses it from now on", err=True)
