"""`trimtab keys`: who may ask a server. The keys themselves are shown once and kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.later import LOOK

FileOption = Annotated[
    Path, typer.Option("--file", help="The file of keys, `serve.keys` in agent.yaml.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called.")]
FILE = Path("keys.json")

keys = typer.Typer(name="keys", no_args_is_help=True, add_completion=False, **LOOK)


@keys.callback()
def options() -> None:
    """Make and revoke API keys of `trimtab serve`; a server that runs sees it at once."""


@keys.command()
def create(  # noqa: PLR0917 - typer reads options from parameters
    name: NameArgument,
    tenant: Annotated[str, typer.Option(help="Whose sessions it opens.")] = "default",
    agent: Annotated[
        list[str] | None,
        typer.Option(help="An agent that it may use; may be given again. Unset, all."),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics",
            help="Let it read /metrics, which counts all tenants, and nothing else: no sessions.",
        ),
    ] = False,
    file: FileOption = FILE,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it, once; only its hash is kept."""
    from trimtab.cli.storing import friendly
    from trimtab.gateways.http.keys import new_key, read_keys, write_keys

    with friendly():
        known = read_keys(file) if file.exists() else []
        if any(key.name == name for key in known):
            raise ValueError(
                f"{file} has a key called {name} already; to replace it, create one of another "
                "name, let its users change over, then revoke this one"
            )
        text, kept = new_key(
            name, tenant=tenant, agents=tuple(agent) if agent else None, metrics=metrics
        )
        write_keys(file, [*known, kept])
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
def list_(file: FileOption = FILE, as_json: JsonOption = False) -> None:
    """List the keys of a file: their names, what they open, tenants and agents."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.storing import friendly, page
    from trimtab.cli.words import age, plain
    from trimtab.gateways.http.keys import read_keys

    with friendly():
        found = read_keys(file)
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
        cells = (key.name, "sessions", key.tenant, agents, age(key.created))
        if key.metrics:
            cells = (key.name, "metrics only", "–", "–", age(key.created))
        table.add_row(*(Text(plain(cell)) for cell in cells))
    page().print(table)
    for key in found:
        if key.narrowed:
            typer.echo(
                f"{key.name} opened sessions of tenant {key.tenant} as well when it was made, and "
                "does no longer; for sessions make another one: trimtab keys create NAME",
                err=True,
            )


@keys.command()
def revoke(name: NameArgument, file: FileOption = FILE) -> None:
    """Revoke a key; whoever uses it is refused from now on."""
    from trimtab.cli.storing import friendly
    from trimtab.cli.words import listed
    from trimtab.gateways.http.keys import read_keys, write_keys

    with friendly():
        known = read_keys(file)
        left = [key for key in known if key.name != name]
        if len(left) == len(known):
            there = listed([key.name for key in known]) or "none"
            raise LookupError(f"{file} has no key called {name}; there is {there}")
        write_keys(file, left)
    typer.echo(f"revoked {name}; a server that runs refuses it from now on", err=True)
