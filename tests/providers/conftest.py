import pytest

from trimtab.testing.server import serve_simulated_provider


@pytest.fixture(scope="module")
def served():
    with serve_simulated_provider() as started:
        yield started
