"""Where the benchmarks of the stores keep their sessions, and how these are opened again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from trimtab.stores.base import Store
from trimtab.stores.files import FileStore
from trimtab.stores.files.disk import session_to_folder_name
from trimtab.stores.postgres import PostgresStore

SERVER = os.environ.get("TRIMTAB_POSTGRES") or "host=127.0.0.1 port=5432 user=postgres"
STORES = ("files", "postgres")

_SIZE = """
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relnamespace = 'trimtab'::regnamespace AND relkind = 'r'
"""


class Place(Protocol):
    async def open(self, *, hasty: bool = False) -> Store:
        """The store; a hasty one does not wait for the disk."""
        ...

    def size(self, sessions: list[str]) -> int:
        """Bytes on disk of these sessions, which are all there are."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    root: Path

    async def open(self, *, hasty: bool = False) -> Store:
        return FileStore(self.root, fsync=not hasty)

    def size(self, sessions: list[str]) -> int:
        folders = [self.root / session_to_folder_name(session) for session in sessions]
        return sum(path.stat().st_size for folder in folders for path in folder.rglob("*"))


@dataclass(frozen=True, slots=True)
class Postgres:
    conninfo: str

    async def open(self, *, hasty: bool = False) -> Store:
        own = {"options": "-c synchronous_commit=off"} if hasty else {}
        return await PostgresStore.connect(make_conninfo(self.conninfo, **own))

    def size(self, sessions: list[str]) -> int:
        del sessions  # a table's pages are shared by all
        with psycopg.connect(self.conninfo) as connection:
            row = connection.execute(_SIZE).fetchone()
        assert row is not None
        return int(row[0] or 0)


def no_server() -> str | None:
    """Why there is no PostgreSQL; None where there is one."""
    try:
        psycopg.connect(SERVER, dbname="postgres", connect_timeout=3).close()
    except psycopg.OperationalError as error:
        return f"no PostgreSQL at {SERVER!r}: {error}"
    return None


@contextmanager
def place(store: str, kept: str | None = None) -> Generator[Place]:
    """A place of a kind, removed at the end; or the one kept under a name, made where it is not."""
    if store == "files":
        with _folder(kept) as folder:
            yield Files(folder)
    else:
        with _database(kept) as conninfo:
            yield Postgres(conninfo)


@contextmanager
def _folder(kept: str | None) -> Generator[Path]:
    if kept is not None:
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        yield Path(folder)


@contextmanager
def _database(kept: str | None) -> Generator[str]:
    name = kept or f"trimtab_bench_{uuid4().hex[:8]}"
    with psycopg.connect(SERVER, dbname="postgres", autocommit=True) as server:
        query = "SELECT FROM pg_database WHERE datname = %s"
        if server.execute(query, [name]).fetchone() is None:
            server.execute(f'CREATE DATABASE "{name}"'.encode())
    try:
        yield make_conninfo(SERVER, dbname=name)
    finally:
        if kept is None:
            with psycopg.connect(SERVER, dbname="postgres", autocommit=True) as server:
                server.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
