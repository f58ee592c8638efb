"""One suite for all counters: `counted` is each in turn, with its store."""

from pathlib import Path

import pytest

from trimtab.stores.files import FileStore
from trimtab.stores.postgres import PostgresStore
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.usage.postgres import PostgresUsageCounters
from trimtab_serve.usage.sqlite import SqliteUsageCounters


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.postgres)])
def location(request, tmp_path):
    if request.param == "files":
        return tmp_path / "sessions"
    return request.getfixturevalue("database")


@pytest.fixture
async def counted(location):
    """A store, and its counters."""
    if isinstance(location, Path):
        store = FileStore(location, fsync=False)
        queue = await SqliteMessageQueue.open(store, fsync=False)
        counters = SqliteUsageCounters(queue.database, store)
    else:
        store = await PostgresStore.connect(location)
        queue = await PostgresMessageQueue.connect(location)
        counters = PostgresUsageCounters(queue.borrow_connection)
    yield store, counters
    await queue.close()
    await store.close()
