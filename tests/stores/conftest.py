"""One suite for every store: `store` is each in turn, `place` is where to open it again."""

import pytest

from tests.stores import places


@pytest.fixture(scope="session")
def template():
    yield from places.template()


@pytest.fixture(scope="session")
def shared(template):
    """A database that each test finds empty."""
    with places.database(template) as address:
        yield address


@pytest.fixture
def migrated(template):
    """A database of one's own with all tables, empty."""
    with places.database(template) as address:
        yield address


@pytest.fixture(params=places.NAMES)
def place(request, tmp_path):
    address = request.getfixturevalue("shared") if request.param == "postgres" else ""
    with places.made(request.param, tmp_path / "sessions", address) as new_place:
        yield new_place


@pytest.fixture
async def store(place):
    open_store = await place.open()
    yield open_store
    await open_store.close()
