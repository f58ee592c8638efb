"""Two databases, wiped before each test, with a store and a queue in each."""

import asyncio

import pytest

from tests.serve.queue.postgres import databases
from tests.serve.shards.shards import opened
from tests.stores.places import database as fresh


@pytest.fixture(scope="session")
def database():
    yield from databases.made()


@pytest.fixture(scope="session")
def second_database(database):
    with fresh(database) as conninfo:
        yield conninfo


@pytest.fixture
async def source(database):
    await databases.wipe(database)
    async with opened(database) as shard:
        yield shard


@pytest.fixture
async def target(second_database):
    await databases.wipe(second_database)
    async with opened(second_database) as shard:
        yield shard


@pytest.fixture
def addresses(database, second_database):
    asyncio.run(databases.wipe(database))
    asyncio.run(databases.wipe(second_database))
    return database, second_database
