"""The table of tests that are expected to fail, and the one place that names the product."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.documents.expected import COUNT, EXPECTED

HERE = Path(__file__).parent
NAMING = {"product.py", "channels.py"}
"""Modules that know what the product calls things."""


def names_here() -> list[str]:
    return [
        node.name
        for path in HERE.glob("test_document_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def imported(path: Path) -> set[str]:
    """The packages that a module imports, at any place."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                found |= {name.name.partition(".")[0] for name in node.names}
            case ast.ImportFrom():
                found.add((node.module or "").partition(".")[0])
            case _:
                pass
    return found


def test_no_more_tests_are_expected_to_fail_than_were():
    assert len(EXPECTED) == COUNT


def test_every_test_that_is_expected_to_fail_exists_once():
    names = names_here()
    assert {name: names.count(name) for name in EXPECTED} == dict.fromkeys(EXPECTED, 1)


def test_every_test_that_is_expected_to_fail_says_what_is_wrong_for_a_user():
    assert all(20 < len(reason) < 120 and "\n" not in reason for reason in EXPECTED.values())


def test_tests_are_expected_to_fail_in_the_table_alone():
    marked = [path.name for path in HERE.glob("test_*.py") if "mark.xfail" in read_code(path)]
    assert marked == []


def read_code(path: Path) -> str:
    """A module without its own texts, which may speak of marks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return "" if path.name == Path(__file__).name else ast.unparse(tree)


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.name)
def test_only_the_helpers_name_the_product(path):
    assert path.name in NAMING or "trimtab" not in imported(path)
