"""The tables of the PostgreSQL store, version by version: forward only, one at a time.

Each migration runs in a transaction of its own under a lock of the database, so that many may ask
at once: one works, the others find it done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from psycopg import AsyncConnection, AsyncRawCursor, Error, errors

from trimtab.stores.errors import NewerSchema, NotMigrated
from trimtab.stores.postgres.errors import MIGRATE, place_of, translated
from trimtab.stores.postgres.queries import QUERIES

LOCK = 0x7472696D746162
"""`trimtab` as a number: by which two migrations know of each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    version: int
    """From 1, without gaps."""
    name: str
    """The file's name without its ending."""
    sql: bytes
    """What it runs."""

    @property
    def checksum(self) -> str:
        """SHA-256 of what it runs; a file that was released is never changed."""
        return sha256(self.sql).hexdigest()


async def migrate(conninfo: str) -> list[str]:
    """Bring a database to this release's version; returns the names of what was applied."""
    place = place_of(conninfo)
    async with connected(conninfo) as connection:
        done: list[str] = []
        for _ in known():
            name = await _next(connection, place)
            if name is None:
                break
            done.append(name)
        return done


async def missing(conninfo: str) -> list[str]:
    """The names of what `migrate` would apply; nothing is changed."""
    async with connected(conninfo) as connection:
        try:
            applied = await _applied(connection)
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            applied = []
    _refuse_newer(applied, place_of(conninfo))
    return [migration.name for migration in known()[len(applied) :]]


@asynccontextmanager
async def connected(conninfo: str) -> AsyncGenerator[AsyncConnection]:
    """A connection of its own for migrations; what fails is told by its cause."""
    place = place_of(conninfo)
    try:
        async with await AsyncConnection.connect(
            conninfo, autocommit=True, cursor_factory=AsyncRawCursor
        ) as connection:
            yield connection
    except Error as error:
        raise translated(error, place, writes=False) or error from error


async def check(connection: AsyncConnection, place: str) -> None:
    """Refuse a database of an earlier or a later release."""
    try:
        applied = await _applied(connection)
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise NotMigrated(f"{place} has no tables of ours; {MIGRATE}") from error
    _refuse_newer(applied, place)
    if len(applied) < len(known()):
        raise NotMigrated(
            f"{place} is at version {len(applied)} and this release needs {len(known())}; {MIGRATE}"
        )


@cache
def known() -> tuple[Migration, ...]:
    """All migrations of this release, in order."""
    folder = files("trimtab.stores.postgres").joinpath("sql/migrations")
    texts = {
        item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(".sql")
    }
    return tuple(
        Migration(version=int(name[:4]), name=name.removesuffix(".sql"), sql=texts[name])
        for name in sorted(texts)
    )


async def _next(connection: AsyncConnection, place: str) -> str | None:
    """Apply the first that is missing; None if there is none."""
    async with connection.transaction():
        await connection.execute(QUERIES["lock_migrations"], [LOCK])
        await connection.execute(QUERIES["begin_migrations"])
        applied = await _applied(connection)
        _refuse_newer(applied, place)
        if len(applied) == len(known()):
            return None
        migration = known()[len(applied)]
        await connection.execute(migration.sql)
        await connection.execute(
            QUERIES["record_migration"],
            [migration.version, migration.name, migration.checksum],
        )
        return migration.name


async def _applied(connection: AsyncConnection) -> list[tuple[int, str, str]]:
    cursor = await connection.execute(QUERIES["applied"])
    return [(version, name, checksum) for version, name, checksum in await cursor.fetchall()]


def _refuse_newer(applied: list[tuple[int, str, str]], place: str) -> None:
    if len(applied) > len(known()):
        raise NewerSchema(
            f"{place} is at version {applied[-1][0]} ({applied[-1][1]}) and this release knows up "
            f"to {len(known())}; upgrade trimtab"
        )
    for (version, name, checksum), migration in zip(applied, known(), strict=False):
        if checksum != migration.checksum:
            raise NewerSchema(
                f"version {version} of {place} was made by {name!r} as another release has it; "
                "use that release"
            )
