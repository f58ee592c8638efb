"""tests/conformance.md says which test holds each requirement; this holds it to that."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.documents.expected import EXPECTED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "conformance.md"

SOURCES = (
    ROOT / "packages/trimtab/src/trimtab",
    ROOT / "packages/trimtab-serve/src/trimtab_serve",
    ROOT,
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)(?:\[[^`]*\])?`")


def rows(text: str) -> list[str]:
    """The body rows of every table."""
    lines = text.splitlines()
    found: list[str] = []
    in_body = False
    for line in lines:
        if re.fullmatch(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*", line):
            in_body = True
        elif not line.lstrip().startswith("|"):
            in_body = False
        elif in_body:
            found.append(line)
    return found


@cache
def find_tests(path: Path) -> dict[str, bool]:
    """Whether each test never runs, by its name, with the classes around it."""
    found: dict[str, bool] = {}

    def look(body: list[ast.stmt], around: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{around}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"{around}{node.name}"] = skipped(node)

    look(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def skipped(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Skipped or expected to fail whatever the machine; `skipif` depends on it."""
    marks = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
    calls = [ast.unparse(step) for step in node.body if isinstance(step, ast.Expr)]
    return any(mark.endswith((".skip", ".xfail")) for mark in marks) or any(
        call.startswith("pytest.skip(") for call in calls
    )


def problem(path: str, name: str) -> str | None:
    file = ROOT / path
    if not (file.is_file() and file.name.startswith("test_")):
        return f"{path} is no test file"
    never_runs = find_tests(file).get(name)
    if never_runs is None or not name.rpartition("::")[2].startswith("test_"):
        return f"{path} has no {name}"
    return f"{path}::{name} never runs" if never_runs else None


def test_every_requirement_names_a_test():
    table = rows(PAGE.read_text(encoding="utf-8"))
    assert table
    assert [row for row in table if not TEST.search(row)] == []


def test_every_test_that_is_named_exists_and_runs():
    named = TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert named
    assert [said for path, name in named if (said := problem(path, name))] == []


def test_every_file_that_is_named_exists():
    named = {
        path
        for row in rows(PAGE.read_text(encoding="utf-8"))
        for path in re.findall(r"`([\w./*]+(?:\.py|/[\w.*]*))`", row.split(" | ")[1])
    }
    assert named
    assert [path for path in named if not any([*source.glob(path)] for source in SOURCES)] == []


def test_what_is_expected_to_fail_is_told_as_not_met_yet_and_holds_nothing():
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("\n## Not met yet\n")
    section, _, after = rest.partition("\n## ")
    assert {name for _, name in TEST.findall(section)} == set(EXPECTED)
    assert {name for _, name in TEST.findall(before + after)}.isdisjoint(EXPECTED)


def test_a_row_is_told_from_a_header():
    assert rows("| a | b |\n|---|:-:|\n| 1 | 2 |\n\n| not | a body |") == ["| 1 | 2 |"]


def test_a_missing_or_skipped_test_is_noticed():
    here = "tests/contracts/test_conformance.py"
    node = ast.parse("@pytest.mark.skip(reason='x')\ndef test_a(): ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert skipped(node)
    assert problem(here, "test_a_row_is_told_from_a_header") is None
    assert problem(here, "test_that_is_not_here")
    assert problem("tests/nowhere/test_x.py", "test_a")


def test_a_run_without_a_test_that_is_named_is_noticed():
    from tests.contracts.ran import without

    came_to = {"a": {"passed", "skipped"}, "b": {"skipped"}, "c": {"failed"}}
    assert without(["a", "b", "c", "d"], came_to) == (["d"], ["b"])
