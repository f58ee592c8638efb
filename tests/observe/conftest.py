import pytest

from tests.observe.exported import Traced


@pytest.fixture
def traced():
    spans = Traced()
    yield spans
    spans.close()
