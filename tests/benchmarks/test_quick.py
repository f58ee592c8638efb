"""The quick runs of benchmarks end well: whatever must hold in them, holds.

TRIMTAB_BENCHMARKS=all runs those as well that take longer than the rest of a test run should.
"""

import os
import subprocess
import sys

import pytest

from benchmarks.__main__ import BRIEF, COMMANDS, ROOT

ALL = os.environ.get("TRIMTAB_BENCHMARKS") == "all"
CHOSEN = [command for command in COMMANDS if ALL or command[-1].rpartition(".")[2] in BRIEF]


def test_what_is_brief_is_a_benchmark():
    assert {command[-1].rpartition(".")[2] for command in COMMANDS} >= BRIEF


@pytest.mark.parametrize("command", CHOSEN, ids=lambda c: " ".join(c).removeprefix("-m "))
def test_the_quick_run_ends_well(command):
    done = subprocess.run(
        [sys.executable, *command, "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    if done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.strip())
