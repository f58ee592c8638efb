"""Procrastinate's tables, brought to the version that is installed."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection, errors

from trimtab.stores.postgres.migrations import LOCK, connected
from trimtab.stores.postgres.queries import QUERIES as STORE
from trimtab.worker.postgres.queries import QUERIES


async def migrate_queue(conninfo: str) -> list[str]:
    """Bring the queue's tables to this version; returns the names of what was applied.

    A new database gets Procrastinate's whole schema, a known one the migrations that it lacks.
    """
    async with connected(conninfo) as connection:
        done: list[str] = []
        while (name := await _next(connection, _known())) is not None:
            done.append(name)
        return done


async def missing_queue(conninfo: str) -> list[str]:
    """The names of what `migrate_queue` would apply; nothing is changed."""
    async with connected(conninfo) as connection:
        try:
            cursor = await connection.execute(QUERIES["queue_migrations"])
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return [_whole()]
        applied = {name for (name,) in await cursor.fetchall()}
    return [f"procrastinate {name}" for name in _known() if name not in applied]


async def _next(connection: AsyncConnection, known: dict[str, bytes]) -> str | None:
    """Apply what is missing first; None if nothing is."""
    async with connection.transaction():
        await connection.execute(STORE["lock_migrations"], [LOCK])
        await connection.execute(QUERIES["begin_queue"])
        cursor = await connection.execute(QUERIES["queue_migrations"])
        applied = {name for (name,) in await cursor.fetchall()}
        missing = [name for name in known if name not in applied]
        if not missing:
            return None
        await connection.execute(QUERIES["enter_queue"])
        if applied:
            await connection.execute(known[missing[0]])
            await connection.execute(QUERIES["record_queue"], [missing[:1]])
            return f"procrastinate {missing[0]}"
        await connection.execute(SchemaManager.get_schema().encode())
        await connection.execute(QUERIES["tune_queue"])
        await connection.execute(QUERIES["record_queue"], [missing])
        return _whole()


def _whole() -> str:
    """What its whole schema is called."""
    return f"procrastinate {version('procrastinate')}"


def _known() -> dict[str, bytes]:
    """Procrastinate's migrations by name, in order."""
    files = Path(SchemaManager.get_migrations_path()).glob("*.sql")
    return {file.stem: file.read_bytes() for file in sorted(files)}
