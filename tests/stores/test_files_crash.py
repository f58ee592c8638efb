"""A process that ends at any of its writes leaves what was before, or what was to be."""

import sys
from pathlib import Path

import pytest

from tests import warm
from tests.stores.crash import SCENARIOS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_process_that_is_ended_at_any_write_leaves_the_old_or_the_new(name, tmp_path):
    # In a process of its own: it forks, which a process with threads should not.
    found = warm.run([sys.executable, "-m", "tests.stores.crash", name, str(tmp_path)], cwd=ROOT)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) >= 8, "points at which it was ended"
