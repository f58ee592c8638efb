"""`trimtab migrate`: bring a database to this release."""

from __future__ import annotations

import asyncio
import json
import os
from importlib.util import find_spec
from typing import Annotated

import typer

from trimtab.cli.beside import store_beside
from trimtab.cli.refusing import refused, warn_of_password
from trimtab.stores.choose import is_database
from trimtab.stores.errors import StoreError

HINT = "PostgreSQL needs two more packages: pip install 'trimtab[postgres]'"
NONE = (
    "no database is named; say it with --database, in the environment as TRIMTAB_DATABASE or "
    "DATABASE_URL, or as `store` under `session` in agent.yaml"
)


def _chosen(context: typer.Context, database: str) -> str:
    warn_of_password(context, "database", database, instead="TRIMTAB_DATABASE")
    return database


def migrate(
    database: Annotated[
        str,
        typer.Option(
            envvar="TRIMTAB_DATABASE",
            callback=_chosen,
            help="The database, as libpq has it: postgresql://user@host/name or host=… dbname=… "
            "Unset, the one that `session.store` of ./agent.yaml names, else DATABASE_URL.",
            show_default=False,
        ),
    ] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be applied, and change nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Bring a PostgreSQL database to this release; safe to run again, and from many at once.

    Where Procrastinate is installed, its tables are brought as well, in the schema trimtab_queue.
    """
    try:
        names = asyncio.run(_names(database or _unsaid(), plan=plan))
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise refused(HINT) from error
    except (StoreError, ValueError) as error:
        raise refused(str(error)) from error
    if as_json:
        typer.echo(json.dumps({"missing" if plan else "applied": names}))
    elif names:
        typer.echo("\n".join(f"{'missing' if plan else 'applied'} {name}" for name in names))
    else:
        typer.echo("nothing to do: the database is up to date")


def _unsaid() -> str:
    """The database of the agent here, else that of the environment."""
    store = store_beside() or ""
    found = store if is_database(store) else os.environ.get("DATABASE_URL", "")
    if not found:
        raise ValueError(NONE)
    return found


async def _names(database: str, *, plan: bool) -> list[str]:
    """What was applied, or would be: the tables of the store, the mail and the schedules, then
    those of the queue."""
    from trimtab.stores.postgres.migrations import migrate as apply
    from trimtab.stores.postgres.migrations import missing

    names = await (missing if plan else apply)(database)
    if find_spec("procrastinate") is not None:
        from trimtab.worker.postgres.schema import migrate_queue, missing_queue

        names += await (missing_queue if plan else migrate_queue)(database)
    return names
