"""tests/attacks.md says what becomes of each attack and by which test; this holds it to that."""

from __future__ import annotations

import re

from tests.contracts.test_conformance import ROOT, TEST, problem, rows

TEXT = (ROOT / "tests" / "attacks.md").read_text(encoding="utf-8")
LEAST = 150
"""So many rows there are at least; with fewer, a table was not read."""
OUTCOMES = ("held: ", "held in part: ", "not held: ")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


TABLE = [cells(row) for row in rows(TEXT)]


def test_every_attack_has_its_number():
    numbers = [int(row[0]) for row in TABLE]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= LEAST


def test_every_attack_has_an_outcome_and_a_test():
    for number, attack, outcome, test in TABLE:
        assert attack, number
        assert outcome.startswith(OUTCOMES), number
        assert TEST.search(test), number
        # Nothing that looks like a test escapes the search.
        assert len(TEST.findall(test)) == test.count("`tests/"), number


def test_what_is_said_to_hold_is_held_by_tests_that_run_and_the_rest_by_none():
    for number, _, outcome, test in TABLE:
        found = [problem(path, name) for path, name in TEST.findall(test)]
        if outcome.startswith("not held: "):
            assert all(said and said.endswith("never runs") for said in found), (number, found)
        else:
            assert found == [None] * len(found), (number, found)


def test_every_attack_of_the_folder_is_in_the_table():
    named = {f"{path}::{name}" for path, name in TEST.findall(TEXT)}
    there = {
        f"tests/attacks/{file.name}::{name}"
        for file in (ROOT / "tests" / "attacks").glob("test_*.py")
        for name in re.findall(
            r"^(?:async )?def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert there - named == set()
