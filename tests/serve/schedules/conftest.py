"""One suite for all that keeps schedules: `place` is each in turn."""

import asyncio

import pytest

from tests.serve.queue.postgres import databases
from tests.serve.schedules.places import Files, Postgres


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def shared_database():
    yield from databases.made()


@pytest.fixture
def database(shared_database):
    """A database with nothing in it."""
    asyncio.run(databases.wipe(shared_database))
    return shared_database


@pytest.fixture(params=["files", "postgres"])
def place(request, tmp_path):
    if request.param == "files":
        return Files(tmp_path)
    return Postgres(request.getfixturevalue("database"))


@pytest.fixture
async def kept(place):
    async with place.open() as schedules:
        yield schedules
