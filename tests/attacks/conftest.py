"""One server for all attacks over HTTP that leave it as it was."""

import pytest

from tests.attacks.target import attacked


@pytest.fixture(scope="session")
def shared_target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked") / "agent"
    folder.mkdir()
    with attacked(folder) as target:
        target.ask("The word of the operator is ZEBRA.", "secret", key="operator")
        yield target


@pytest.fixture
def target(shared_target):
    """The server, which is still healthy after the attack."""
    yield shared_target
    assert shared_target.request("GET", "/healthz", key=None).status == 200
