"""The quick runs of benchmarks and of the programs of tests/soak end well."""

import subprocess
import sys

import pytest

from benchmarks.__main__ import ROOT, START_OPTIONS, list_programs


@pytest.mark.process
@pytest.mark.soak
@pytest.mark.parametrize("module", list_programs())
def test_the_quick_run_ends_well(module):
    done = subprocess.run(
        [sys.executable, "-m", module, *START_OPTIONS.get(module, ()), "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    if done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.strip())
