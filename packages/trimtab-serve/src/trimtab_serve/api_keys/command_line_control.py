"""Open the API keys of a store for the command line, beside the processes that serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trimtab.errors import StoreUnavailable
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files import FileStore
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

FLEET_PACKAGES_HINT = "keys in PostgreSQL need more packages: pip install 'trimtab[fleet]'"


@asynccontextmanager
async def open_api_keys(location: str) -> AsyncGenerator[ApiKeyStore]:
    """Open the keys of a folder, which is created if it does not exist, or of a database."""
    if not is_database_address(location):
        store = await open_store(location)
        assert isinstance(store, FileStore)  # noqa: S101 - what a place that is no database opens as
        try:
            queue = await SqliteMessageQueue.open(store, serve=False)
            try:
                yield ApiKeyStore(queue.transactions)
            finally:
                await queue.close()
        finally:
            await store.close()
        return
    try:
        from trimtab.stores.postgres.connection_pool import ConnectionPool
        from trimtab_serve.queue.postgres.transactions import PostgresTransactions
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(FLEET_PACKAGES_HINT) from error
    connections = await ConnectionPool.open(location, max_size=1, wait=10.0, purpose="keys")
    try:
        yield ApiKeyStore(PostgresTransactions(connections.borrow))
    finally:
        await connections.close()
