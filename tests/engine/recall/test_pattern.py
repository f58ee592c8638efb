"""Patterns that are looked for in lines: as `re` finds them, and never for long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durations import measure_cpu_s
from trimtab.engine.recall.linear_regex import (
    LinearPattern,
    UnsupportedPattern,
    compile_line_matcher,
)
from trimtab.engine.recall.lines import extract_lines

PIECES = [
    "a",
    "ab",
    ".",
    "[ab]",
    "[^a]",
    "[a-b1]",
    r"\d",
    r"\W",
    "(a|b)",
    "(ab|c|)",
    "(?:a)",
    r"\.",
]
SIGNS = ["", "", "*", "+", "?", "{2}", "{1,2}", "{,1}", "{1,}", "*?"]


@given(
    st.sampled_from(["", "^"]),
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(SIGNS)), min_size=1, max_size=5),
    st.sampled_from(["", "$", "|b"]),
    st.text("abcABx1. ", max_size=10),
)
def test_it_finds_what_re_finds(start, items, end, line):
    text = start + "".join(piece + sign for piece, sign in items) + end
    match_ends = [*LinearPattern(text).find_match_ends(line)]
    assert bool(match_ends) == (re.search(text, line, re.IGNORECASE) is not None)


DEAR = [
    "(a+)+$",
    "(a|a)*b$",
    "(a|b)*a(a|b){40}",
    "(.*)*(.*)*(.*)*x",
    "((a{50}){50}){50}",
    "(" * 9_000,
]


@pytest.mark.parametrize("text", DEAR, ids=lambda text: text[:20])
def test_no_pattern_takes_long(text):
    lines = "\n".join("ab" * n + "a" * 2_000 for n in range(1, 200, 7))
    # With `re` the first alone would take for ever.
    assert measure_cpu_s(lambda: extract_lines(lines, grep_pattern=text), enough_s=5) <= 5
    one_line = lines.replace("\n", "!")
    assert measure_cpu_s(lambda: extract_lines(one_line, grep_pattern=text), enough_s=5) <= 5


@pytest.mark.parametrize(
    "text", [r"(a)\1", "(?=a)a", "a)", "(a", "[a", "*a", "a{500}", r"\p", "\\"]
)
def test_what_is_not_understood_is_a_text(text):
    with pytest.raises(UnsupportedPattern):
        LinearPattern(text)
    assert compile_line_matcher(text)(f"here is {text.upper()}, as it stands")
    assert not compile_line_matcher(text)("here is none")


def test_lines_are_found_wherever_the_match_stands_in_them():
    text = f"one\n{'x' * 300_000} E_1042 failed\nthree"
    assert extract_lines(text, grep_pattern=r"e_\d+ failed$", max_chars=400_000).endswith(
        "E_1042 failed"
    )
