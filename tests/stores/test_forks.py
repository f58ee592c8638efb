"""A process that is forked while it has a store, as `multiprocessing` and gunicorn do."""

import os
import sys
from pathlib import Path

import pytest

from tests import warm

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here"),
]
ROOT = Path(__file__).parents[2]


def run(scenario, place):
    location = getattr(place, "root", None) or getattr(place, "conninfo", "")
    command = [sys.executable, "-m", "tests.stores.forked", scenario, place.name, str(location)]
    finished = warm.run(command, cwd=ROOT)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout.splitlines()


def test_a_fork_uses_the_store_as_another_process_and_opens_sessions_again(place):
    refused = (
        "session 's' was opened in process PARENT, of which this one is a fork; open it again to "
        "use it"
    )
    lines = run("share", place)
    match place.name:
        case "memory":  # each process has its own
            assert lines == [
                refused,
                "['own']",
                "['before', 'parent']",
                "['before', 'parent']",
            ]
        case "files":
            assert lines == [
                refused,
                "locked by the parent",
                "['own']",
                "['before', 'parent']",
                "['before', 'parent', 'after']",
            ]
        case _:
            assert lines == [
                refused,
                "['own']",
                "['before', 'child ', 'parent']",
                "['before', 'child ', 'parent', 'after']",
            ]


def test_a_turn_is_free_when_its_process_was_killed_although_a_fork_of_it_lives(place):
    if place.name == "memory":
        pytest.skip("it ends with its process")
    assert run("outlive", place) == ["free True"]
