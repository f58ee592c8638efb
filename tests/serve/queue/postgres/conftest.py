"""A database of our own, wiped before each test, with the queue's tables in it."""

import asyncio

import pytest

from tests.serve.queue.postgres import databases


@pytest.fixture(scope="session")
def database():
    yield from databases.made()


@pytest.fixture(params=["postgres"])
def place(database):
    asyncio.run(databases.wipe(database))
    return databases.Postgres(database)


@pytest.fixture
def conninfo(place):
    return place.conninfo
