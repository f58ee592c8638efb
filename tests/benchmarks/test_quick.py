"""The quick runs of benchmarks end well: whatever must hold in them, holds."""

import subprocess
import sys

import pytest

from benchmarks.__main__ import COMMANDS, ROOT


@pytest.mark.process
@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c).removeprefix("-m "))
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
