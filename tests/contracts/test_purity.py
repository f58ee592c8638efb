"""What importing the library costs, and what it may pull in."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "trimtab"
PURE = sorted([*(PACKAGE / "core").rglob("*.py"), *(PACKAGE / "dialects").rglob("*.py")])


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_importing_the_library_loads_the_standard_library_alone():
    loaded = json.loads(
        run(
            "import sys, json; before = set(sys.modules); import trimtab;"
            "print(json.dumps(sorted(set(sys.modules) - before)))"
        )
    )
    tops = {name.partition(".")[0] for name in loaded}
    assert "trimtab" in tops
    assert tops - sys.stdlib_module_names == {"trimtab"}


def test_importing_the_library_takes_at_most_200_ms():
    code = (
        "import dataclasses, json; from time import perf_counter; start = perf_counter();"
        "import trimtab; print(perf_counter() - start)"
    )
    # The best of five: a busy machine slows a run down, nothing speeds one up.
    assert min(float(run(code)) for _ in range(5)) <= 0.2


def test_importing_the_library_does_not_read_the_model_catalog():
    code = "import trimtab, trimtab.catalog as c; print(c._catalog.cache_info().currsize)"
    assert int(run(code)) == 0


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_core_and_dialects_import_no_third_party(path):
    assert imported(path) - sys.stdlib_module_names <= {"trimtab"}
