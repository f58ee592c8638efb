"""Open the schedules of a store for the command line, beside the processes that run them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trimtab.errors import StoreUnavailable
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files import FileStore
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.store import ScheduleStore

FLEET_PACKAGES_HINT = "schedules on PostgreSQL need more packages: pip install 'trimtab[fleet]'"


@asynccontextmanager
async def open_schedules(location: str) -> AsyncGenerator[ScheduleStore]:
    """Open the schedules of a folder or a database.

    The process that serves them notices the changes and answers posted messages. If none is
    running, the next one does.
    """
    if not is_database_address(location):
        # If the folder does not exist, this error says so.
        store = await open_store(location, allow_new_folder=False)
        assert isinstance(store, FileStore)  # noqa: S101 - what a place that is no database opens as
        try:
            queue = await SqliteMessageQueue.open(store, serve=False)
            try:
                yield ScheduleStore(queue.transactions)
            finally:
                await queue.close()
        finally:
            await store.close()
        return
    try:
        from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
    except ModuleNotFoundError as error:
        if error.name not in ("procrastinate", "psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(FLEET_PACKAGES_HINT) from error
    queue = await PostgresMessageQueue.connect(location)
    try:
        yield ScheduleStore(queue.transactions)
    finally:
        await queue.close()
