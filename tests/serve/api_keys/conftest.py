"""One suite for all that keeps API keys: `keys` is each in turn, and `again` opens it once more."""

from contextlib import AsyncExitStack

import pytest

from trimtab_serve.api_keys.command_line_control import open_api_keys


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.postgres)])
def location(request, tmp_path):
    if request.param == "files":
        return str(tmp_path / "sessions")
    return request.getfixturevalue("database")


@pytest.fixture
async def keys(location):
    async with open_api_keys(location) as api_keys:
        yield api_keys


@pytest.fixture
async def again(location):
    """The same keys as another process has them."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(open_api_keys(location))
