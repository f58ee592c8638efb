"""What importing the library costs, and what it may pull in."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "packages/trimtab/src/trimtab"
INSIDE = ("trimtab.engine.", "trimtab.errors.")
"""What the core may import of Trimtab: itself, and the exceptions, which import nothing."""


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.process
def test_importing_the_library_loads_the_standard_library_alone():
    loaded = json.loads(
        run(
            "import sys, json; before = set(sys.modules); import trimtab;"
            "print(json.dumps(sorted(set(sys.modules) - before)))"
        )
    )
    tops = {name.partition(".")[0] for name in loaded}
    assert "trimtab" in tops
    assert tops - sys.stdlib_module_names == {"trimtab"}  # and nothing of the server


@pytest.mark.process
def test_importing_the_library_takes_at_most_200_ms_of_cpu():
    code = (
        "import dataclasses, json; from time import process_time; start = process_time();"
        "import trimtab; print(process_time() - start)"
    )
    # CPU time, and the best of five: a busy machine slows a run down, nothing speeds one up.
    assert min(float(run(code)) for _ in range(5)) <= 0.2


@pytest.mark.process
def test_importing_the_library_does_not_read_the_model_catalog():
    code = (
        "import trimtab, trimtab.models.catalog as c; print(c._load_catalog.cache_info().currsize)"
    )
    assert int(run(code)) == 0


def imported(code: str) -> set[str]:
    """Modules that are imported by their whole names, wherever it is done; `.` for a near one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # What is taken from the package itself may be a module of it.
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def beyond(names: set[str]) -> set[str]:
    """Those of Trimtab's modules that are not of the core."""
    own = {name for name in names if name.partition(".")[0] in ("trimtab", "")}
    return {name for name in own if not f"{name}.".startswith(INSIDE)}


def test_core_and_dialects_import_the_standard_library_and_the_core_alone():
    """Import-linter knows the packages that its contracts list; this knows all others, and the root
    package itself."""
    for part in ("engine", "dialects"):
        for path in (PACKAGE / part).rglob("*.py"):
            names = imported(path.read_text(encoding="utf-8"))
            packages = {name.partition(".")[0] for name in names}
            assert packages - sys.stdlib_module_names <= {"trimtab"}, path
            assert part == "dialects" or beyond(names) == set(), path


@pytest.mark.parametrize(
    "code",
    [
        "import trimtab",
        "import trimtab.session.session",
        "from trimtab import Context",
        "from trimtab.logging import x",
        "from ..session import Session",
        "def late():\n    from trimtab.models.catalog import resolve_model_info",
    ],
)
def test_what_is_imported_from_elsewhere_is_noticed(code):
    assert beyond(imported(code))


def test_what_core_imports_of_itself_is_in_order():
    code = (
        "import trimtab.engine.log\nfrom trimtab.engine.policy import plan\n"
        "from trimtab.engine.policy.planning.plan import TextCap"
    )
    assert beyond(imported(code)) == set()
