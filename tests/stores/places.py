"""Where a store keeps its logs, so that it can be opened again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from tests import lanes
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore

NAMES = ("memory", "files", "postgres")
SERVER = os.environ.get("TRIMTAB_POSTGRES") or "host=127.0.0.1 port=5432 user=postgres"


class Place(Protocol):
    name: str

    async def open(self) -> Store: ...


class Memory:
    name = "memory"

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def open(self) -> Store:
        return self._store


@dataclass
class Files:
    root: Path
    fsync: bool = False
    name: str = "files"

    async def open(self) -> Store:
        return FileStore(self.root, fsync=self.fsync)


@dataclass
class Postgres:
    conninfo: str
    name: str = "postgres"

    async def open(self) -> Store:
        from trimtab.stores.postgres import PostgresStore

        return await PostgresStore.connect(self.conninfo)


def template() -> Generator[str]:
    """A migrated database to copy, for as long as the tests run; skips where it cannot be had."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from trimtab.stores.postgres.migrations import migrate

    try:
        psycopg.connect(SERVER, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL at {SERVER!r}: {error}")
    with database("") as conninfo:
        asyncio.run(migrate(conninfo))
        yield conninfo


@contextmanager
def database(copied: str) -> Generator[str]:
    """A database of its own, empty or a copy of another, dropped at the end."""
    lanes.require_postgres()
    import psycopg
    from psycopg import conninfo, sql

    name = f"trimtab_test_{uuid4().hex[:12]}"
    like = conninfo.conninfo_to_dict(copied).get("dbname", "template1") if copied else "template1"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(str(like))
            )
        )
        try:
            yield conninfo.make_conninfo(SERVER, dbname=name)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def wipe(conninfo: str) -> None:
    """Delete all rows, but not those of a migration.

    A new database takes many times as long, and so does truncating so many tables.
    """
    import psycopg

    with psycopg.connect(conninfo) as connection:
        tables = connection.execute(
            "SELECT oid::regclass::text FROM pg_class "
            "WHERE relnamespace::regnamespace::text LIKE 'trimtab%' "
            "AND relkind IN ('r', 'p') AND NOT relispartition "
            "AND relname NOT IN ('migrations', 'erasure_secret')"
        ).fetchall()
        # Without foreign keys and triggers the order is of no account.
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute("; ".join(f"DELETE FROM {table}" for (table,) in tables).encode())  # noqa: S608 - our own


@contextmanager
def made(name: str, root: Path, shared: str) -> Generator[Place]:
    """A place of a kind, with nothing in it. A database is that of all tests, wiped."""
    match name:
        case "memory":
            yield Memory()
        case "files":
            yield Files(root)
        case _:
            wipe(shared)
            yield Postgres(shared)
