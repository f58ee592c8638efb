"""`trimtab migrate`: bring a database to this release."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from trimtab.stores.errors import StoreError

HINT = "PostgreSQL needs two more packages: pip install 'trimtab[postgres]'"


def migrate(
    database: Annotated[
        str,
        typer.Option(
            envvar="TRIMTAB_DATABASE",
            help="The database, as libpq has it: postgresql://user@host/name or host=… dbname=…",
            show_default=False,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Bring a PostgreSQL database to this release; safe to run again, and from many at once."""
    try:
        from trimtab.stores.postgres.migrations import migrate as apply
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise _refused(HINT) from error
    try:
        applied = asyncio.run(apply(database))
    except (StoreError, ValueError) as error:
        raise _refused(str(error)) from error
    if as_json:
        typer.echo(json.dumps({"applied": applied}))
    elif applied:
        typer.echo("\n".join(f"applied {name}" for name in applied))
    else:
        typer.echo("nothing to do: the database is up to date")


def _refused(why: str) -> typer.Exit:
    typer.echo(f"trimtab: {why}", err=True)
    return typer.Exit(1)
