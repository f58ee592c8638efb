"""Two databases, wiped before each test, with a store and a queue in each."""

import asyncio

import pytest

from tests.serve.queue.postgres import databases
from tests.serve.shards.shards import opened
from tests.stores.places import database as fresh


@pytest.fixture(scope="session")
def shared_second_database(shared_database):
    with fresh(shared_database) as conninfo:
        yield conninfo


@pytest.fixture
def second_database(shared_second_database):
    asyncio.run(databases.wipe(shared_second_database))
    return shared_second_database


@pytest.fixture
async def source(database):
    async with opened(database) as shard:
        yield shard


@pytest.fixture
async def target(second_database):
    async with opened(second_database) as shard:
        yield shard
