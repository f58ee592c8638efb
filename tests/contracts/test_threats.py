"""THREAT_MODEL.md says which test holds each defence; this holds it to that."""

import re

from tests.contracts.test_conformance import ROOT, TEST, problem, rows

TEXT = (ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
DEFENDED, _, NOT_DEFENDED = TEXT.partition("## Not defended")


def test_every_threat_has_a_defence_and_a_test():
    told = rows(DEFENDED.partition("## Callers")[2])
    assert len(told) > 30
    for row in told:
        threat, defence, test = [cell.strip() for cell in row.strip("| ").split(" | ")]
        assert threat, row
        assert defence, row
        assert TEST.search(test), row


def test_every_test_that_is_named_exists_and_runs():
    named = TEST.findall(TEXT)
    assert [said for path, name in named if (said := problem(path, name))] == []
    # Nothing that looks like a test escapes the search.
    assert len(named) == len(re.findall(r"`tests/[^`]*`", TEXT))


def test_what_is_not_defended_is_said():
    assert len(re.findall(r"^- \*\*", NOT_DEFENDED, re.MULTILINE)) >= 5
