"""`python -m benchmarks --start` sees when what a benchmark calls is there no more."""

import os
import subprocess
import sys

import pytest

from benchmarks.__main__ import ROOT, list_programs

PLANTED = {
    "calls_what_moved": "import trimtab; trimtab.no_such_name()",
    "logs_what_failed": "import logging, time\ntry: None.x\nexcept AttributeError: "
    "logging.exception('in a server'); time.sleep(60)",
    "refuses_quick": "import argparse; argparse.ArgumentParser().parse_args()",
    "works_for_hours": "while True: pass",
    "waits_for_hours": "import time; time.sleep(9_999)",
    "reports_a_figure": "import sys; sys.exit(1)",
}


@pytest.mark.process
def test_a_benchmark_that_cannot_be_started_is_named_with_its_error(tmp_path):
    for name, code in PLANTED.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    starts = (
        f"from benchmarks import __main__ as runner; runner.list_programs = lambda: {[*PLANTED]}; "
        "runner.list_files = list; print(sorted(runner.start_all()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", starts],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    broken = ["calls_what_moved", "logs_what_failed", "refuses_quick"]
    assert done.stdout.splitlines()[-1] == str(broken)
    assert "AttributeError" in done.stdout


def test_programs_are_found_and_not_listed():
    programs = list_programs()
    assert {"benchmarks.fit", "benchmarks.doors.__main__", "tests.soak.faults"} <= {*programs}
    assert not {"benchmarks.corpus", "benchmarks.fit_weights"} & {*programs}
