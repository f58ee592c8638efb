import pytest

from tests.observe.conftest import traced
from tests.serve.metrics.exported import Difference

__all__ = ["counted", "traced"]


@pytest.fixture
def counted():
    """What the metrics have gained since the test began."""
    return Difference()
