"""Where the fleet's messages are: PostgreSQL, with the queue beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass

import pytest

from tests.stores import places
from tests.stores.places import SERVER
from tests.stores.places import database as fresh
from trimtab.stores.base import Store
from trimtab_serve.queue.protocol import MessageQueue


@dataclass
class Postgres:
    conninfo: str
    name: str = "postgres"

    async def open(self) -> tuple[Store, MessageQueue]:
        from trimtab.stores.postgres import PostgresStore
        from trimtab_serve.queue.postgres.queue import PostgresMessageQueue

        store = await PostgresStore.connect(self.conninfo)
        return store, await PostgresMessageQueue.connect(self.conninfo)


def made() -> Generator[str]:
    """A migrated database for as long as the tests run; skips where it cannot be had."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    pytest.importorskip("procrastinate", reason="procrastinate is not installed")
    try:
        psycopg.connect(SERVER, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL at {SERVER!r}: {error}")
    with fresh("") as conninfo:
        asyncio.run(migrate(conninfo))
        yield conninfo


async def migrate(conninfo: str) -> None:
    from trimtab.stores.postgres.migrations import migrate as migrate_store
    from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue

    await migrate_store(conninfo)
    await migrate_job_queue(conninfo)


async def wipe(conninfo: str) -> None:
    """Delete all rows, those of the queue as well."""
    await asyncio.to_thread(places.wipe, conninfo)
