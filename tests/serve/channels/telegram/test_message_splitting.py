"""Long replies in pieces: all of the text, in order, within the limit, no entity cut apart."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulators.telegram.message_text_validation import validate_message_text
from trimtab_serve.channels.telegram.message_splitting import (
    MAX_MESSAGE_UTF16_UNITS,
    MAX_REPLY_UTF16_UNITS,
    MAX_SPANS_PER_MESSAGE,
    split_telegram_message,
)
from trimtab_serve.channels.telegram.paced_sender import build_telegram_entities
from trimtab_serve.channels.telegram.styled_text import StyledText, convert_markdown_to_styled_text
from trimtab_serve.channels.utf16 import count_utf16_units

WORDS = st.sampled_from(
    [
        "word",
        "**bold**",
        "`code`",
        "[link](https://a.example/x)",
        "_it_",
        "😀👍🏽",
        "~~no~~",
        "é",
        "x" * 40,
    ]
)
LINES = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)
BLOCKS = st.one_of(
    LINES,
    LINES.map(lambda line: f"# {line}"),
    LINES.map(lambda line: f"> {line}"),
    LINES.map(lambda line: f"- {line}\n  - {line}"),
    LINES.map(lambda line: f"```python\n{line}\n{line}\n```"),
    st.just("| a | b |\n|---|---|\n| 1 | 2 |"),
    st.text(max_size=60),
)
TEXTS = st.lists(BLOCKS, min_size=1, max_size=12).map("\n\n".join)


def told(piece: StyledText) -> dict[str, object]:
    return {
        "text": piece.text,
        "entities": [one.to_dict() for one in build_telegram_entities(piece)],
    }


def letters(text: str) -> str:
    return re.sub(r"\s+", "", text)


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.sampled_from([60, 200, MAX_REPLY_UTF16_UNITS]))
def test_all_of_the_text_is_there_in_pieces_that_telegram_takes(text, limit):
    whole = convert_markdown_to_styled_text(text)
    pieces = split_telegram_message(whole, limit)
    assert letters("".join(one.text for one in pieces)) == letters(whole.text)
    for one in pieces:
        assert count_utf16_units(one.text) <= limit
        validate_message_text(told(one), "text")


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.sampled_from([80, 300]))
def test_what_is_marked_and_fits_is_not_cut_apart(text, limit):
    whole = convert_markdown_to_styled_text(text)
    short = [
        (mark.kind, letters(whole.text[mark.start : mark.end]))
        for mark in whole.spans
        if count_utf16_units(whole.text[mark.start : mark.end]) <= limit
    ]
    pieces = split_telegram_message(whole, limit)
    if len(whole.spans) > MAX_SPANS_PER_MESSAGE:
        return
    found = [
        (mark.kind, letters(one.text[mark.start : mark.end]))
        for one in pieces
        for mark in one.spans
    ]
    for one in short:
        assert one in found
        found.remove(one)


def test_anything_at_all_becomes_something_that_telegram_takes():
    for text in (
        "\ud800",
        "\u200b",
        "**",
        "```",
        "[]()",
        "<b>x</b>",
        "&amp;",
        "# ",
        "> ",
        "- ",
        "a\x00b",
    ):
        for piece in split_telegram_message(convert_markdown_to_styled_text(text)):
            validate_message_text(told(piece), "text")


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_no_text_is_refused(text):
    for piece in split_telegram_message(convert_markdown_to_styled_text(text), 100):
        validate_message_text(told(piece), "text")


@pytest.mark.parametrize("sign", ["😀", "a", "é"])
def test_a_text_without_any_place_to_cut_is_cut_at_the_limit(sign):
    pieces = split_telegram_message(StyledText(text=sign * 9_000), MAX_MESSAGE_UTF16_UNITS)
    assert "".join(one.text for one in pieces) == sign * 9_000
    assert all(count_utf16_units(one.text) == MAX_MESSAGE_UTF16_UNITS for one in pieces[:-1])


def test_a_long_block_of_code_goes_on_as_code_in_the_next_message():
    code = "\n".join(f"    line_{number} = {number}" for number in range(600))
    pieces = split_telegram_message(
        convert_markdown_to_styled_text(f"Here:\n\n```python\n{code}\n```\n\nDone.")
    )
    assert len(pieces) > 2
    blocks = [mark for one in pieces for mark in one.spans if mark.kind == "pre"]
    assert {mark.language for mark in blocks} == {"python"}
    shown = "\n".join(
        one.text[mark.start : mark.end]
        for one in pieces
        for mark in one.spans
        if mark.kind == "pre"
    )
    assert shown == code


def test_more_than_a_hundred_entities_go_into_several_messages():
    pieces = split_telegram_message(
        convert_markdown_to_styled_text(" ".join(f"**b{number}**" for number in range(250)))
    )
    assert [len(one.spans) <= MAX_SPANS_PER_MESSAGE for one in pieces] == [True] * len(pieces)
    assert sum(len(one.spans) for one in pieces) == 250
