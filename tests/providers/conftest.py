import pytest

from tests.simulators.clouds.local_server import serve_simulated_clouds


@pytest.fixture(scope="module")
def served():
    with serve_simulated_clouds() as started:
        yield started
