"""Whenever a process ends: what it was to forget is gone, or the log is as it was."""

import sys
from pathlib import Path

import pytest

from tests import warm
from tests.serve.forgetting.erasure_crash import VERBS

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.process


def ended(verb, folder, step):
    # In a process of its own: it forks, which a process with threads should not.
    found = warm.run(
        [
            sys.executable,
            "-m",
            "tests.serve.forgetting.erasure_crash",
            verb,
            str(folder),
            str(step),
        ],
        cwd=ROOT,
    )
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


STEPS = {"erase": 60, "delete": 60, "user": 120}
"""From one write to the next at which a process is ended; to forget a user takes most writes."""


@pytest.mark.parametrize("verb", VERBS)
def test_a_process_that_ends_while_it_forgets_has_done_it_or_can_be_asked_again(verb, tmp_path):
    assert ended(verb, tmp_path, STEPS[verb]) >= 4


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_the_same_at_each_single_write(verb, tmp_path):
    assert ended(verb, tmp_path, 1) >= 30
