"""The tables of the PostgreSQL store, version by version: forward only, one at a time.

Each migration runs in its own transaction and holds a lock of the database. If several processes
migrate at once, one works, and the others find it done.

A release runs on tables that a later release has migrated, so that one can go back without a
restore. A migration that takes away what an earlier release uses says so in its first line:
`-- breaks: releases without 0002` if the release must know migration 0002. The number is its own if
the previous release cannot run on it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from psycopg import AsyncConnection, AsyncRawCursor, Error, errors

from trimtab.errors import DatabaseNotMigrated, DatabaseSchemaTooNew
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.error_translation import (
    MIGRATE_HINT,
    describe_database,
    translate_psycopg_error,
)
from trimtab.stores.postgres.queries import QUERIES

_log = logging.getLogger(__name__)

MIGRATION_LOCK_ID = 0x7472696D746162
"""`trimtab` as a number: the lock that keeps two migrations apart."""

_BREAKS_LINE = re.compile(rb"-- breaks: releases without (\d{4})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    version: int
    """Version from 1, without gaps."""
    name: str
    """The file's name without its suffix."""
    sql: bytes
    """The SQL to run."""

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL. A released file never changes."""
        return sha256(self.sql).hexdigest()

    @property
    def needed_version(self) -> int:
        """The version that a release must know to run on these tables; 0 if every release can."""
        match = _BREAKS_LINE.match(self.sql)
        if match is None and self.sql.startswith(b"-- breaks"):
            raise ValueError(
                f"the first line of migration {self.name} cannot be read; write "
                "`-- breaks: releases without 0002`"
            )
        return 0 if match is None else int(match[1])


class AppliedMigration(NamedTuple):
    """A row of `trimtab.migrations`."""

    version: int
    name: str
    checksum: str
    needed_version: int


async def migrate(conninfo: str) -> list[str]:
    """Make or upgrade the tables of a PostgreSQL store, like `trimtab migrate`.

    It is safe to repeat, and to run in several processes at once. The jobs of a server have tables
    of their own, which only the command migrates.

    Args:
        conninfo: The address of the database: a URI, or `host=… dbname=…`.

    Returns:
        The names of the applied migrations. Empty if the database is up to date.

    Raises:
        StoreUnavailable: The database cannot be reached.
        StoreNotWritable: The user may not create tables.
        DatabaseSchemaTooNew: A newer version of trimtab has migrated the database.
    """
    place = describe_database(conninfo)
    async with open_migration_connection(conninfo) as connection:
        names: list[str] = []
        for _ in load_migrations():
            name = await _apply_next_migration(connection, place)
            if name is None:
                break
            names.append(name)
        return names


async def list_pending_migrations(conninfo: str) -> list[str]:
    """Return the names of the migrations that `trimtab migrate` would apply. Nothing is changed."""
    async with open_migration_connection(conninfo) as connection:
        try:
            past_migrations = await _fetch_applied_migrations(connection)
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            past_migrations = []
    _refuse_other_schema(past_migrations, describe_database(conninfo))
    return [migration.name for migration in load_migrations()[len(past_migrations) :]]


@asynccontextmanager
async def open_migration_connection(conninfo: str) -> AsyncGenerator[AsyncConnection]:
    """Open a connection for migrations. Errors name their cause."""
    place = describe_database(conninfo)
    try:
        async with await AsyncConnection.connect(
            add_connection_name(conninfo, "migrate"),
            autocommit=True,
            cursor_factory=AsyncRawCursor,
        ) as connection:
            yield connection
    except Error as error:
        raise translate_psycopg_error(error, place, may_have_written=False) or error from error


async def check_schema_version(connection: AsyncConnection, database_label: str) -> None:
    """Refuse a database whose tables are not those of this release."""
    try:
        past_migrations = await _fetch_applied_migrations(connection)
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise DatabaseNotMigrated(
            f"{database_label} has no tables of trimtab; {MIGRATE_HINT}"
        ) from error
    _refuse_other_schema(past_migrations, database_label)
    if len(past_migrations) < len(load_migrations()):
        raise DatabaseNotMigrated(
            f"{database_label} is at version {len(past_migrations)}, but this release needs "
            f"{len(load_migrations())}; {MIGRATE_HINT}"
        )
    if len(past_migrations) > len(load_migrations()):
        _log.warning(
            "%s is at version %d (%s), made by a newer release; this release knows version %d and "
            "runs on it",
            database_label,
            past_migrations[-1].version,
            past_migrations[-1].name,
            len(load_migrations()),
        )


@cache
def load_migrations() -> tuple[Migration, ...]:
    """Return all migrations of this release, in order."""
    folder = files("trimtab.stores.postgres").joinpath("sql/migrations")
    texts = {
        item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(".sql")
    }
    return tuple(
        Migration(version=int(name[:4]), name=name.removesuffix(".sql"), sql=texts[name])
        for name in sorted(texts)
    )


async def _apply_next_migration(connection: AsyncConnection, database_label: str) -> str | None:
    """Apply the first missing migration; None if there is none."""
    async with connection.transaction():
        await connection.execute(QUERIES["lock_migrations"], [MIGRATION_LOCK_ID])
        await connection.execute(QUERIES["begin_migrations"])
        past_migrations = await _fetch_applied_migrations(connection)
        _refuse_other_schema(past_migrations, database_label)
        if len(past_migrations) >= len(load_migrations()):
            return None
        migration = load_migrations()[len(past_migrations)]
        await connection.execute(migration.sql)
        await connection.execute(
            QUERIES["record_migration"],
            [migration.version, migration.name, migration.checksum, migration.needed_version],
        )
        return migration.name


async def _fetch_applied_migrations(connection: AsyncConnection) -> list[AppliedMigration]:
    cursor = await connection.execute(QUERIES["applied"])
    return [AppliedMigration(*row) for row in await cursor.fetchall()]


def _refuse_other_schema(past_migrations: list[AppliedMigration], database_label: str) -> None:
    """Refuse tables that this release cannot run on."""
    for migration in past_migrations:
        if migration.needed_version > len(load_migrations()):
            raise DatabaseSchemaTooNew(
                f"{database_label} is at version {migration.version} ({migration.name}), which "
                f"needs a release that knows version {migration.needed_version}; this release "
                f"knows only versions up to {len(load_migrations())}; upgrade trimtab"
            )
    for migration, own_migration in zip(past_migrations, load_migrations(), strict=False):
        if migration.checksum != own_migration.checksum:
            raise DatabaseSchemaTooNew(
                f"version {migration.version} of {database_label} was made by "
                f"{migration.name!r} of another release; use that release"
            )
