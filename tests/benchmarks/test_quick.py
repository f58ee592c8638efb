"""Every benchmark's quick run ends well: whatever must hold in it, holds."""

import subprocess
import sys

import pytest

from benchmarks.__main__ import COMMANDS, ROOT


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
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
