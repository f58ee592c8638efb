"""The simulator in a process of its own; stores on files and in PostgreSQL."""

import pytest

from tests import warm


@pytest.fixture(scope="session")
def shared_simulator():
    with warm.spawn_simulated_provider(tokenizer="estimate") as remote:
        yield remote


@pytest.fixture
def simulator(shared_simulator):
    shared_simulator.reset()
    return shared_simulator


@pytest.fixture(params=["files", "postgres"])
def store(request, tmp_path):
    """What `session.store` says."""
    return "sessions" if request.param == "files" else request.getfixturevalue("database")
