"""What type checkers say of programs that use the library. `make types` runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.soak]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [str(path) for path in (ROOT / "packages").glob("*/src")]
USER_PROGRAM = Path(__file__).with_name("user_program.py").read_text()

RIGHT_LINES = ('Context("any-name", dialect="openai_chat")', 'fit([], model="gpt-4o", goal="cost")')
MISSPELLINGS = (
    'Context("gpt-4o", policy="atuo")',
    'Context("gpt-4o", dialect="anthropc")',
    'Context("gpt-4o", limits={"max_tool_result_token": 3})',
    'Context("gpt-4o").configure(modle="x")',
    'fit([], model="gpt-4o", foo=1)',
    'Context("gpt-4o", model_info={"context_windw": 3})',
    'Context("gpt-4o", goal="cheap")',
    'Context("gpt-4o", cache="2h")',
    'Context("gpt-4o").configure(policy="atuo")',
    'fit([], model="gpt-4o", limits={"summary": {"maxtokens": 3}})',
)
MISSPELLED_PROGRAM = "\n".join(
    ["from trimtab import Context, fit", *RIGHT_LINES, *MISSPELLINGS, ""]
)

Reported = set[tuple[str, int]]
"""File names and lines."""


def run_pyright(folder: Path) -> Reported:
    """What pyright reports in strict mode."""
    settings = {"typeCheckingMode": "strict", "extraPaths": SOURCES}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    command = [sys.executable, "-m", "pyright", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 2
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    }


def run_mypy(folder: Path) -> Reported:
    """What mypy reports with `--strict`."""
    # The library's own sources are read as those of an installed package are: not reported upon.
    options = ["--strict", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "."],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "MYPYPATH": os.pathsep.join(SOURCES),
            "MYPY_CACHE_DIR": str(ROOT / "build" / "mypy"),
        },
    )
    assert not done.stderr
    reported = re.findall(r"^(.+?):(\d+): error: ", done.stdout, re.MULTILINE)
    return {(Path(path).name, int(line)) for path, line in reported}


@pytest.mark.parametrize("run_checker", [run_pyright, run_mypy])
def test_the_sdks_types_are_kept_and_misspelled_options_found(run_checker, tmp_path):
    (tmp_path / "user_program.py").write_text(USER_PROGRAM)
    (tmp_path / "misspelled.py").write_text(MISSPELLED_PROGRAM)
    first = 2 + len(RIGHT_LINES)
    expected = {("misspelled.py", first + index) for index in range(len(MISSPELLINGS))}
    assert run_checker(tmp_path) == expected
