"""`trimtab migrate`: upgrade a database to this release."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Annotated

import typer

from trimtab.cli.extension import find_extension, read_local_agent_store_location
from trimtab.cli.stderr_messages import print_error_for_exit, warn_about_typed_password
from trimtab.errors import MissingPackageError, StoreError
from trimtab.stores.factory import is_database_address

NO_DATABASE_TEXT = (
    "no database is named; use --database, the environment variable TRIMTAB_DATABASE or "
    "DATABASE_URL, or `store` under `session` in agent.yaml"
)


def _check_database_option(context: typer.Context, database: str) -> str:
    warn_about_typed_password(context, "database", database, variable="TRIMTAB_DATABASE")
    return database


def migrate_command(
    database: Annotated[
        str,
        typer.Option(
            envvar="TRIMTAB_DATABASE",
            callback=_check_database_option,
            help="postgresql://user@host/name or host=… dbname=… Default: `session.store` of "
            "./agent.yaml, then DATABASE_URL.",
            show_default=False,
        ),
    ] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="List pending migrations, and change nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Upgrade a PostgreSQL database to this release. Safe to repeat and to run in parallel."""
    try:
        names = asyncio.run(_run_migrations(database or _default_database(), plan=plan))
    except (MissingPackageError, StoreError, ValueError) as error:
        raise print_error_for_exit(str(error)) from error
    if as_json:
        typer.echo(json.dumps({"missing" if plan else "applied": names}))
    elif names:
        typer.echo("\n".join(f"{'missing' if plan else 'applied'} {name}" for name in names))
    else:
        typer.echo("nothing to do: the database is up to date")


def _default_database() -> str:
    """Return the database of the agent here, or otherwise that of the environment."""
    store = read_local_agent_store_location() or ""
    address = store if is_database_address(store) else os.environ.get("DATABASE_URL", "")
    if not address:
        raise ValueError(NO_DATABASE_TEXT)
    return address


async def _run_migrations(database: str, *, plan: bool) -> list[str]:
    """Return the migrations that were applied or are pending: first those of the store, the message
    queue and the schedules, then those of the job queue."""
    from trimtab.stores.postgres.migrations import list_pending_migrations, migrate

    names = await (list_pending_migrations if plan else migrate)(database)
    extension = find_extension()
    if extension is not None:
        names += await extension.migrate_jobs(database, plan=plan)
    return names
