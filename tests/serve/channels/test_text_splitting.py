"""A text is cut where a reader would, and never inside what belongs together if that can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_serve.channels.text_splitting import find_cut, is_inside_range
from trimtab_serve.channels.utf16 import count_utf16_units

TEXTS = st.lists(
    st.sampled_from(["word", " ", "\n", "\n\n", "😀", "🇨🇭", "e\u0301", ". "]), min_size=1
).map("".join)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a" * 6 + "\n\n" + "b" * 6, 6),
        ("a" * 6 + "\n" + "b" * 2 + " " + "c" * 6, 6),
        ("aa\n" + "b" * 20, 2),
        ("a" * 10 + " " + "b" * 6, 10),
        ("a" * 20, 10),
        ("a" * 9 + "😀" + "b", 9),
    ],
)
def test_the_best_place_that_comes_late_enough_is_taken(text, cut):
    assert find_cut(text, max_units=10) == cut


def test_a_sign_of_the_platform_keeps_what_is_no_white_space():
    assert find_cut("One two. Three", max_units=10, signs=((". ", 2), (" ", 2))) == 8


def test_a_range_is_not_cut_if_there_is_a_place_before_it():
    text = "aaa bbb ccc ddd"
    assert find_cut(text, max_units=12, unsplittable=[(8, 15)]) == 7
    assert find_cut("aaabbb", max_units=5, unsplittable=[(3, 6)]) == 3
    assert find_cut("aaabbb", max_units=5, unsplittable=[(0, 6)]) == 5
    assert find_cut("aaabbb", max_units=5, unsplittable=[(-2, 6)]) == 5


def test_a_text_without_a_place_goes_into_the_next_message():
    assert find_cut("a" * 20, max_units=10, used_units=4) == 0


@given(TEXTS, st.integers(4, 30), st.integers(0, 3))
def test_a_cut_is_within_the_limit_and_gets_on(text, limit, used):
    cut = find_cut(text, max_units=limit, used_units=used)
    assert (0 if used else 1) <= cut <= len(text)
    assert used + count_utf16_units(text[:cut]) <= limit


def test_the_edges_of_a_range_are_not_inside_it():
    assert [is_inside_range([(2, 5)], cut) for cut in (2, 3, 5)] == [False, True, False]
