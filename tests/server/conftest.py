"""One suite for every mail: `mail` is each in turn, with its `store`; `place` opens it again."""

import pytest

from tests.server import queues as mails


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=mails.NAMES)
def place(request, tmp_path):
    with mails.made(request.param, tmp_path / "sessions") as found:
        yield found


@pytest.fixture
async def opened(place):
    store, mail = await place.open()
    yield store, mail
    await mail.close()
    await store.close()


@pytest.fixture
def store(opened):
    return opened[0]


@pytest.fixture
def mail(opened):
    return opened[1]
