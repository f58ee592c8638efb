"""Long replies in pieces: all of the text, in order, within the limit, no entity cut apart."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.gateways.telegram.chunks import LIMIT, MARKS, ROOM, chunks
from trimtab.gateways.telegram.markdown import from_markdown
from trimtab.gateways.telegram.sending import entities
from trimtab.gateways.telegram.styled import Styled
from trimtab.gateways.utf16 import units
from trimtab.testing.telegram.texts import checked

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


def told(piece: Styled) -> dict[str, object]:
    return {"text": piece.text, "entities": [one.to_dict() for one in entities(piece)]}


def letters(text: str) -> str:
    return re.sub(r"\s+", "", text)


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.sampled_from([60, 200, ROOM]))
def test_all_of_the_text_is_there_in_pieces_that_telegram_takes(text, limit):
    whole = from_markdown(text)
    pieces = chunks(whole, limit)
    assert letters("".join(one.text for one in pieces)) == letters(whole.text)
    for one in pieces:
        assert units(one.text) <= limit
        checked(told(one), "text")


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.sampled_from([80, 300]))
def test_what_is_marked_and_fits_is_not_cut_apart(text, limit):
    whole = from_markdown(text)
    short = [
        (mark.kind, letters(whole.text[mark.start : mark.end]))
        for mark in whole.marks
        if units(whole.text[mark.start : mark.end]) <= limit
    ]
    pieces = chunks(whole, limit)
    if len(whole.marks) > MARKS:
        return
    found = [
        (mark.kind, letters(one.text[mark.start : mark.end]))
        for one in pieces
        for mark in one.marks
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
        for piece in chunks(from_markdown(text)):
            checked(told(piece), "text")


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_no_text_is_refused(text):
    for piece in chunks(from_markdown(text), 100):
        checked(told(piece), "text")


@pytest.mark.parametrize("sign", ["😀", "a", "é"])
def test_a_text_without_any_place_to_cut_is_cut_at_the_limit(sign):
    pieces = chunks(Styled(text=sign * 9_000), LIMIT)
    assert "".join(one.text for one in pieces) == sign * 9_000
    assert all(units(one.text) == LIMIT for one in pieces[:-1])


def test_a_long_block_of_code_goes_on_as_code_in_the_next_message():
    code = "\n".join(f"    line_{number} = {number}" for number in range(600))
    pieces = chunks(from_markdown(f"Here:\n\n```python\n{code}\n```\n\nDone."))
    assert len(pieces) > 2
    blocks = [mark for one in pieces for mark in one.marks if mark.kind == "pre"]
    assert {mark.language for mark in blocks} == {"python"}
    shown = "\n".join(
        one.text[mark.start : mark.end]
        for one in pieces
        for mark in one.marks
        if mark.kind == "pre"
    )
    assert shown == code


def test_more_than_a_hundred_entities_go_into_several_messages():
    pieces = chunks(from_markdown(" ".join(f"**b{number}**" for number in range(250))))
    assert [len(one.marks) <= MARKS for one in pieces] == [True] * len(pieces)
    assert sum(len(one.marks) for one in pieces) == 250
