"""`trimtab move`: move sessions to another database while both are served."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.cli.stderr_messages import warn_about_typed_password
from trimtab.cli.store_command import (
    UNSET_STORE,
    ProgressStatus,
    StoreOption,
    run_on_store,
)
from trimtab.cli.text_format import escape_control_characters, format_count
from trimtab.stores.base import Store
from trimtab.stores.factory import is_database_address
from trimtab_serve.queue.address import NAME_DESCRIPTION, is_valid_name


def _warn_about_password(context: typer.Context, address: str) -> str:
    warn_about_typed_password(context, "to", address, variable="TRIMTAB_MOVE_TO")
    return address


def move_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A session's id, or a tenant's name for all its sessions."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            envvar="TRIMTAB_MOVE_TO",
            callback=_warn_about_password,
            help="The other database: postgresql://user@host/name.",
        ),
    ],
    shard: Annotated[
        str, typer.Option(help="The name of the other database in the rules of your proxy.")
    ],
    with_bots: Annotated[
        bool,
        typer.Option(
            "--with-bots",
            help="Also move chats of bots and sessions of schedules in agent.yaml. Stop the "
            "processes of this database first.",
        ),
    ] = False,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Move a session, or all sessions of a tenant with copies of its API keys, to another database.

    Both databases can be served meanwhile. If the command is interrupted, run it again.
    """
    if not is_valid_name(shard):
        raise typer.BadParameter(f"a name is {NAME_DESCRIPTION}", param_hint="--shard")
    if not (is_database_address(store) and is_database_address(to)):
        raise typer.BadParameter(
            "sessions move between two PostgreSQL databases; for files, use `trimtab session "
            "export` and `import`"
        )

    async def move(_: Store, progress: ProgressStatus) -> tuple[int, bool]:
        from trimtab_serve.shards.move import open_shards

        async with open_shards(store, to, shard, with_bots=with_bots) as shards:
            if "/" in name:
                return 1, await shards.move_session(name)
            count = 0
            async for session in shards.move_tenant(name):
                count += 1
                progress.show_text(f"moving tenant {name}: {count:,} moved, last {session}")
            return count, True

    count, is_new = run_on_store(store, f"moving {name}", move)
    if "/" in name:
        ending = f"moved session {name}" if is_new else f"session {name} was already moved"
    else:
        ending = f"moved {format_count(count, 'session')} of tenant {name}"
    typer.echo(
        escape_control_characters(
            f"{ending} to {shard}; requests that reach this database are sent there with 421"
        ),
        err=True,
    )
