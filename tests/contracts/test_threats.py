"""THREAT_MODEL.md names the attacks that try each defence; tests/attacks.md names their tests."""

import re

from tests.contracts import test_attacks
from tests.contracts.test_conformance import ROOT, rows

TEXT = (ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
DEFENDED, _, NOT_DEFENDED = TEXT.partition("## Not defended")
ATTACKS = re.compile(r"\(attacks?\s+(\d+)(?:–(\d+))?\)$")


def split_sections(text: str) -> dict[str, str]:
    titled = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(titled[::2], titled[1::2], strict=True))


def list_items(section: str) -> list[str]:
    return [item.strip() for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


SECTIONS = split_sections(DEFENDED)
del SECTIONS["Who may attack"]


def test_both_pages_have_the_same_sections():
    assert list(SECTIONS) == list(split_sections(test_attacks.TEXT))


def test_every_defence_is_tried_and_every_attack_of_its_section_has_a_defence():
    tables = split_sections(test_attacks.TEXT)
    for title, section in SECTIONS.items():
        numbers: list[int] = []
        for defence in list_items(section):
            assert defence.startswith("**"), defence
            attacks = ATTACKS.search(defence)
            assert attacks, defence
            first, last = attacks.groups()
            numbers += range(int(first), int(last or first) + 1)
        assert numbers, title
        assert numbers == [int(test_attacks.cells(row)[0]) for row in rows(tables[title])], title


def test_what_is_not_defended_is_said():
    assert len(list_items(NOT_DEFENDED)) >= 5
