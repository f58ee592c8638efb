"""One suite for every queue: `queue` is each in turn, with its `store`; `place` opens it again."""

import pytest

from tests.serve.queue import queues


@pytest.fixture
def anyio_backend():
    return "asyncio"


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
