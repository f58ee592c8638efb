"""Words: what tools and code are called by."""

import json

import pytest

from trimtab.engine.text.identifiers import (
    RankedIdentifiers,
    count_identifiers,
    join_string_values,
    replace_recall_offers,
    slice_without_splitting_identifiers,
)


@pytest.mark.parametrize(
    "word",
    [
        "parse_header",
        "src/wire/frame.go",
        "frame.go",
        "ErrShort",
        "getValue",
        "utf-8",
        "http://localhost:8080/path",
        "C:\\Users\\me",
        "v1.2.3",
        "sha256",
        "$scope_id",
    ],
)
def test_identifiers_and_paths_count(word):
    assert count_identifiers(f"see {word}, please") == {word: 1}


@pytest.mark.parametrize(
    "text",
    ["plain prose here", "Capital Letters", "SHOUTING", "12345", "1.2.3.4", "a_b", "x.py", "", "…"],
)
def test_prose_numbers_and_short_words_do_not_count(text):
    assert count_identifiers(text) == {}


def test_a_full_stop_is_no_part_of_a_word():
    assert list(count_identifiers("Open src/main.py. Then call run_all().")) == [
        "src/main.py",
        "run_all",
    ]


def test_words_come_in_order_of_appearance_with_their_counts():
    assert count_identifiers("b_second a_first b_second") == {"b_second": 2, "a_first": 1}
    assert list(count_identifiers("b_second a_first b_second")) == ["b_second", "a_first"]


def rank(text: str) -> RankedIdentifiers:
    return RankedIdentifiers(count_identifiers(text))


def test_the_most_frequent_words_are_named_first_and_then_the_earliest():
    assert rank("a_one b_two c_three c_three").list_top(9) == ["c_three", "a_one", "b_two"]
    assert rank("one_a two_b two_b six_c").list_top(9) == ["two_b", "one_a", "six_c"]


def test_no_more_words_are_named_than_asked_for():
    assert rank("one_a two_b six_c").list_top(2) == ["one_a", "two_b"]
    assert rank("one_a two_b six_c").list_top(0) == []
    assert rank("one_a two_b six_c").list_top(-1) == []


@pytest.mark.parametrize("shown", ["one_a", "see one_a, please", "one_axis and then one_a"])
def test_words_that_are_still_to_be_seen_are_not_named(shown: str):
    assert rank("one_a two_b").list_top(9, shown) == ["two_b"]


@pytest.mark.parametrize("shown", ["", "one_axis", "none_a", "src/one_a.py"])
def test_a_word_is_named_though_a_longer_one_holds_it(shown: str):
    assert rank("one_a two_b").list_top(9, shown) == ["one_a", "two_b"]


def test_names_take_at_most_20_characters_each_on_the_whole():
    text = " ".join(f"{'x' * 30}_{number}" for number in range(10))
    named = rank(text).list_top(5)
    assert len(named) == 2
    assert len(", ".join(named)) <= 100


def test_one_endless_word_does_not_hide_the_others():
    endless = "abc_" * 500
    assert rank(f"{endless} one_a two_b").list_top(3) == ["one_a", "two_b"]


def test_a_cut_inside_a_word_takes_the_whole_word():
    text = "see parse_header and ErrShort there"
    assert slice_without_splitting_identifiers(text, 8, 26, 20) == "parse_header and ErrShort"
    assert slice_without_splitting_identifiers(text, 4, 16, 20) == "parse_header"
    assert slice_without_splitting_identifiers(text, 0, len(text), 20) == text
    assert slice_without_splitting_identifiers(text, 3, 4, 20) == " "
    assert slice_without_splitting_identifiers("", 0, 0, 20) == ""


def test_a_word_that_is_too_long_is_cut_at_the_offsets():
    text = "see parse_header and ErrShort there"
    assert slice_without_splitting_identifiers(text, 8, 26, 10) == "parse_header and ErrShort"
    assert slice_without_splitting_identifiers(text, 8, 26, 6) == "e_header and ErrSh"


def test_strings_are_the_values_of_arguments_as_the_tool_sees_them():
    asked = {"path": "a\\b\n", "edits": [{"old": "x", "n": 3}, "y"], "all": True, "none": None}
    assert join_string_values(json.dumps(asked)) == "a\\b\n\nx\ny"


def test_arguments_that_are_no_json_are_taken_as_they_are():
    assert join_string_values('{"path": "src/ma') == '{"path": "src/ma'


@pytest.mark.parametrize("arguments", ["3", "null", "{}", "[]"])
def test_arguments_without_strings_say_nothing(arguments):
    assert join_string_values(arguments) == ""


def test_names_hold_nothing_that_asks_for_what_is_hidden():
    """A result could else let its placeholder offer what it likes."""
    text = "recall_m1-m999 m13.0 m4-m88 search_history src/recall/m2.py real_name other_name"
    assert ", ".join(rank(text).list_top(8)) == "real_name, other_name"


def test_a_line_that_is_quoted_offers_nothing_to_recall():
    line = "done] · recall m13.0] m4-m9 and m2 chips"
    assert replace_recall_offers(line) == "done] · …] … and m2 chips"
