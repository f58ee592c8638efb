"""Migrate Procrastinate's tables to the installed version."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection, errors

from trimtab.stores.postgres.migrations import MIGRATION_LOCK_ID, open_migration_connection
from trimtab.stores.postgres.queries import QUERIES as STORE
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES


async def migrate_job_queue(conninfo: str) -> list[str]:
    """Migrate the tables of the job queue to this version. Return the names of the applied
    migrations.

    A new database gets the whole schema of Procrastinate. An older one gets the missing migrations.
    """
    async with open_migration_connection(conninfo) as connection:
        names: list[str] = []
        while (
            name := await _apply_next_migration(connection, _load_procrastinate_migrations())
        ) is not None:
            names.append(name)
        return names


async def list_missing_job_queue_migrations(conninfo: str) -> list[str]:
    """Return the names of the migrations that `migrate_job_queue` would apply. Nothing is
    changed."""
    async with open_migration_connection(conninfo) as connection:
        try:
            cursor = await connection.execute(SERVER_QUERIES["queue_migrations"])
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return [_full_schema_name()]
        past_names = {name for (name,) in await cursor.fetchall()}
    return [
        f"procrastinate {name}"
        for name in _load_procrastinate_migrations()
        if name not in past_names
    ]


async def _apply_next_migration(
    connection: AsyncConnection, migrations: dict[str, bytes]
) -> str | None:
    """Apply the first missing migration. Return None if there is none."""
    async with connection.transaction():
        await connection.execute(STORE["lock_migrations"], [MIGRATION_LOCK_ID])
        await connection.execute(SERVER_QUERIES["begin_queue"])
        cursor = await connection.execute(SERVER_QUERIES["queue_migrations"])
        past_names = {name for (name,) in await cursor.fetchall()}
        missing = [name for name in migrations if name not in past_names]
        if not missing:
            return None
        await connection.execute(SERVER_QUERIES["enter_queue"])
        if past_names:
            await connection.execute(migrations[missing[0]])
            await connection.execute(SERVER_QUERIES["record_queue"], [missing[:1]])
            return f"procrastinate {missing[0]}"
        await connection.execute(SchemaManager.get_schema().encode())
        await connection.execute(SERVER_QUERIES["tune_queue"])
        await connection.execute(SERVER_QUERIES["record_queue"], [missing])
        return _full_schema_name()


def _full_schema_name() -> str:
    """Return the name of Procrastinate's whole schema."""
    return f"procrastinate {version('procrastinate')}"


def _load_procrastinate_migrations() -> dict[str, bytes]:
    """Return Procrastinate's migrations by name, in order."""
    files = Path(SchemaManager.get_migrations_path()).glob("*.sql")
    return {file.stem: file.read_bytes() for file in sorted(files)}
