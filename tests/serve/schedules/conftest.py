"""One suite for all that keeps schedules: `place` is each in turn."""

import pytest

from tests.serve.schedules.places import Files, Postgres


@pytest.fixture(params=["files", "postgres"])
def place(request, tmp_path):
    if request.param == "files":
        return Files(tmp_path)
    return Postgres(request.getfixturevalue("database"))


@pytest.fixture
async def kept(place):
    async with place.open() as schedules:
        yield schedules
