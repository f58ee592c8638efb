"""Every character of a recalled text can be asked for, also in a text of one long line."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conversations import chat, user
from trimtab.engine.log.message import Message, ToolCall
from trimtab.engine.recall.lines import MAX_ANSWER_CHARS, extract_lines

ROWS = json.dumps([{"id": number, "name": f"row {number}"} for number in range(6_000)])
NOTICE = re.compile(r"\n?\[(?:matches in )?lines (\d+)-(\d+) of (\d+) are shown; ask for (.*)\]$")
EXCERPT = re.compile(r"\[lines? [\d-]+, characters (\d+)-(\d+)\]\n(.*)")
ENDS = "\r\n\u2028"
PIECES = st.sampled_from(["a", "数", "🐋", "İ", "\n", "\r\n", "\u2028", "x" * 999, "y" * 1_990])


def read_all(text: str) -> str:
    """Ask for the lines that each notice names, and put the answers together."""
    out, answer = "", extract_lines(text)
    while notice := NOTICE.search(answer):
        out += answer[: notice.start()]
        answer = extract_lines(text, notice[4].removeprefix("lines "))
    return out + answer


def test_one_long_line_is_read_to_its_end_in_the_lines_that_the_notice_names():
    assert read_all(ROWS) == ROWS
    assert extract_lines(ROWS).endswith(
        f"\n[lines 1-8 of {-(-len(ROWS) // 1_000)} are shown; ask for lines 9-202]"
    )
    assert extract_lines(ROWS, "9-16") == ROWS[8_000:16_000]
    assert extract_lines(ROWS, "202") == ROWS[201_000:]
    assert extract_lines(ROWS, "203") == "(no such lines; the text has 202)"


@given(st.lists(PIECES, min_size=1, max_size=8).map("".join), st.integers(1, 9), st.integers(0, 3))
def test_lines_are_exactly_as_in_the_text_without_the_last_line_end(text, first, more):
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        size = max(1, len(line.rstrip(ENDS)))
        cuts = [*range(0, size, 1_000), len(line)]
        pieces += [line[begin:end] for begin, end in pairwise(cuts)]
    assert "".join(pieces) == text
    asked = "".join(pieces[first - 1 : first + more])
    wanted = re.sub(r"(\r\n|\n|\u2028)\Z", "", asked)
    assert extract_lines(text, f"{first}-{first + more}") == (
        wanted or f"(no such lines; the text has {len(pieces)})"
    )


@pytest.mark.parametrize("needle", ["NEEDLE", "鯨🐋İ", "row 3000 and more"])
@pytest.mark.parametrize("at", [0, 997, 1_000, 103_996, 200_000])
def test_a_pattern_shows_the_text_around_its_match_in_a_long_line(needle, at):
    text = ROWS[:at] + needle + ROWS[at:]
    answer = extract_lines(text, grep_pattern=needle)
    [(begin, end, excerpt)] = EXCERPT.findall(answer)
    assert needle in excerpt
    assert excerpt == text[int(begin) : int(end)]
    assert int(begin) <= max(0, at - 300)
    assert int(end) >= at + len(needle) + 300
    assert len(answer) < 1_100


def test_an_excerpt_names_the_lines_to_read_on_with():
    text = ROWS[:5_500] + "NEEDLE" + ROWS[5_500:]
    assert extract_lines(text, grep_pattern="needle").startswith("[line 6, characters 5106-5806]\n")
    assert "NEEDLE" in extract_lines(text, "6")
    assert extract_lines(text, "7-", "NEEDLE") == "(no line matches)"
    assert "NEEDLE" in extract_lines(text, "6", "NEEDLE")


def test_every_match_is_shown_by_asking_on():
    found: set[int] = set()
    lines = ""
    while True:
        answer = extract_lines(ROWS, lines, r'"id": \d*00,')
        for begin, end, excerpt in EXCERPT.findall(answer):
            assert excerpt == ROWS[int(begin) : int(end)]
            found.update(int(number) for number in re.findall(r'"id": (\d*00),', excerpt))
        assert len(answer) <= MAX_ANSWER_CHARS + 100
        notice = NOTICE.search(answer)
        if notice is None:
            break
        lines = notice[4].removeprefix("lines ")
    assert found >= set(range(100, 6_000, 100))


def test_a_match_everywhere_is_shown_from_the_first_character():
    answer = extract_lines(ROWS, grep_pattern="x*")
    shown = EXCERPT.findall(answer)
    assert "".join(excerpt for *_, excerpt in shown) == ROWS[: int(shown[-1][1])]
    assert NOTICE.search(answer)


def test_a_pattern_that_is_nowhere_finds_nothing_and_short_lines_are_shown_whole():
    assert extract_lines(ROWS, grep_pattern="swordfish") == "(no line matches)"
    assert extract_lines(f"one two\n{ROWS}\ntwo", grep_pattern="two") == "one two\ntwo"


def test_the_model_gets_a_match_in_a_long_line():
    context = chat(recall=True)
    context.add(user(ROWS.replace("row 3000", "NEEDLE swordfish")))
    call = ToolCall(id="r1", name="recall", arguments='{"handle": "m2.0", "grep": "NEEDLE"}')
    context.add(Message(role="assistant", parts=(call,)))
    assert "NEEDLE swordfish" in context.answer(call)
