"""The queue in a database that is wiped before each test."""

import pytest

from tests.serve.queue.postgres import databases


@pytest.fixture(params=["postgres"])
def place(database):
    return databases.Postgres(database)


@pytest.fixture
def conninfo(place):
    return place.conninfo
