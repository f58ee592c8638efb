"""One suite for every queue: `queue` is each in turn, with its `store`; `place` opens it again."""

import asyncio
import warnings

import pytest

from tests.serve.queue import queues
from tests.serve.queue.postgres import databases

with warnings.catch_warnings():
    # The library's part for voice loads a module that Python is to drop.
    warnings.filterwarnings("ignore", "'audioop'", DeprecationWarning)
    import discord as discord


@pytest.fixture(scope="session")
def shared_database():
    yield from databases.made()


@pytest.fixture
def database(shared_database):
    """A database with nothing in it."""
    asyncio.run(databases.wipe(shared_database))
    return shared_database


@pytest.fixture(params=queues.NAMES)
def place(request, tmp_path):
    with queues.made(request.param, tmp_path / "sessions") as new_place:
        yield new_place


@pytest.fixture
async def opened(place):
    store, queue = await place.open()
    yield store, queue
    await queue.close()
    await store.close()


@pytest.fixture
def store(opened):
    return opened[0]


@pytest.fixture
def queue(opened):
    return opened[1]
