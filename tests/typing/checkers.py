"""Type checkers over a folder of programs, as strict as they can be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [str(path) for path in (ROOT / "packages").glob("*/src")]

Reported = dict[tuple[str, int], str]
"""The message by file name and line."""


def run_pyright(folder: Path) -> Reported:
    """What pyright reports in strict mode."""
    settings = {"typeCheckingMode": "strict", "extraPaths": SOURCES}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    command = [sys.executable, "-m", "pyright", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


def run_mypy(folder: Path) -> Reported:
    """What mypy reports with `--strict`."""
    # The library's own sources are read as those of an installed package are: not reported upon.
    # A block of a page takes from the block before it what that one imports.
    options = ["--strict", "--implicit-reexport", "--follow-imports=silent", "--no-error-summary"]
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
    reported = re.findall(r"^(.+?):(\d+): error: (.*)", done.stdout, re.MULTILINE)
    return {(Path(path).name, int(line)): message for path, line, message in reported}
