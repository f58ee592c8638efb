import pytest

from tests.observe.exported import Traced
from trimtab.testing import MemoryStore


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def traced():
    spans = Traced()
    yield spans
    spans.close()
