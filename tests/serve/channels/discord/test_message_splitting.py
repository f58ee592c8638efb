"""Long replies come in pieces that Discord takes, and a reader does not stumble at the cuts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_serve.channels.discord.message_splitting import (
    MAX_MESSAGE_UTF16_UNITS,
    split_discord_message,
)
from trimtab_serve.channels.utf16 import count_utf16_units

FAMILY = "👨‍👩‍👧‍👦"
NAMED = ("<@1234567890>", "<@!12>", "<#77>", "<:wave:123456>", "<a:dance:99>", "<t:1700000000:R>")
WORDS = st.sampled_from(
    [
        "a",
        "word",
        "and",
        "another.",
        "Überraschung",
        "日本語",
        "🇨🇭",
        "👍🏽",
        FAMILY,
        "e\u0301",
        *NAMED,
    ]
)
PROSE = st.lists(
    st.tuples(WORDS, st.sampled_from([" ", " ", " ", "\n", "\n\n", ". ", ""])), max_size=30
).map(lambda pairs: "".join(word + sign for word, sign in pairs))
CODE = st.lists(
    st.sampled_from(["", "    x = 1", "y" * 30, "for a in b:"]), min_size=1, max_size=20
)
BLOCKS = st.tuples(st.sampled_from(["", "python"]), CODE.filter(any)).map(
    lambda pair: f"\n```{pair[0]}\n" + "\n".join(pair[1]) + "\n```\n"
)
TEXTS = st.lists(st.one_of(PROSE, BLOCKS), max_size=5).map("".join)


def letters(text: str) -> str:
    """All that is said, without fences and white space."""
    return re.sub(r"```(python\n)?|\s", "", text)


@given(TEXTS, st.integers(120, 400))
def test_all_is_there_in_order_within_the_limit(text, limit):
    pieces = split_discord_message(text, limit)
    assert all(0 < count_utf16_units(piece) <= limit for piece in pieces)
    assert letters("".join(pieces)) == letters(text)
    assert all(piece.count("```") % 2 == 0 for piece in pieces)


@given(TEXTS, st.integers(120, 400))
def test_nothing_that_is_one_thing_to_a_reader_is_torn(text, limit):
    pieces = split_discord_message(text, limit)
    for one in (*NAMED, FAMILY, "🇨🇭", "👍🏽", "e\u0301"):
        assert sum(piece.count(one) for piece in pieces) == text.count(one)
    for block in re.findall(r"```(?:python)?\n.*?\n```", text, re.DOTALL):
        if count_utf16_units(block) <= limit:
            assert any(block in piece for piece in pieces)


def test_a_short_reply_is_one_piece_as_it_is():
    text = "Hello.\n\n```python\nprint(1)\n```\n\n- one\n  - two"
    assert split_discord_message(text) == [text]
    assert split_discord_message(" \n ") == []


def test_code_that_is_longer_than_a_message_is_closed_and_opened_again_between_lines():
    lines = [f"    line {number}" for number in range(400)]
    first, *rest = split_discord_message(
        "Look:\n```python\n" + "\n".join(lines) + "\n```\nThat is it."
    )
    assert first == "Look:"
    assert len(rest) == 3
    assert all(piece.startswith("```python\n    line") for piece in rest)
    assert rest[-1].endswith("\n```\nThat is it.")
    found = [line for piece in rest for line in piece.split("\n") if line.startswith("    ")]
    assert found == lines


def test_code_that_was_never_closed_is_closed():
    assert split_discord_message("So:\n```sh\nls\n") == ["So:\n```sh\nls\n```"]


def test_a_line_of_code_without_end_is_cut_all_the_same():
    pieces = split_discord_message("```\n" + "x" * 5_000 + "\n```")
    assert [len(piece) for piece in pieces] == [
        MAX_MESSAGE_UTF16_UNITS,
        MAX_MESSAGE_UTF16_UNITS,
        5_000 - 2 * (MAX_MESSAGE_UTF16_UNITS - 8) + 8,
    ]
    assert "".join(piece[4:-4] for piece in pieces) == "x" * 5_000


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a" * 30 + "\n\n" + "b" * 50, ["a" * 30, "b" * 50]),
        ("a" * 30 + ". " + "b" * 50, ["a" * 30 + ".", "b" * 50]),
        ("a" * 57 + "<@12345>" + "b" * 20, ["a" * 57, "<@12345>" + "b" * 20]),
        ("see https://example.com/" + "a" * 40, ["see", "https://example.com/" + "a" * 40]),
        ("x" * 59 + "🇨🇭🇩🇪", ["x" * 59, "🇨🇭🇩🇪"]),
        ("x" * 130, ["x" * 60, "x" * 60, "x" * 10]),
    ],
)
def test_a_cut_is_made_where_a_reader_would(text, pieces):
    assert split_discord_message(text, 60) == pieces
