import pytest

from tests.observe.exported import Traced
from tests.serve.metrics.exported import Difference
from trimtab.testing import MemoryStore


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def counted():
    """What the metrics have gained since the test began."""
    return Difference()


@pytest.fixture
def traced():
    spans = Traced()
    yield spans
    spans.close()
