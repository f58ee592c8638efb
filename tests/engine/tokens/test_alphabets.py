"""The tokens of texts of one alphabet are real, and such a text fits after it was truncated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.tokens.alphabets import ALPHABETS, BYTES, Alphabet
from trimtab import Context
from trimtab.errors import CannotFit

LONG = 40_000
"""Bytes of a text that fills the window several times."""
WINDOW = 8_000
"""Tokens."""

each_alphabet = pytest.mark.parametrize("alphabet", ALPHABETS, ids=lambda alphabet: alphabet.name)


@pytest.fixture(scope="module")
def o200k() -> Callable[[str], int]:
    return pytest.importorskip("rs_bpe.bpe").openai.o200k_base().count


@each_alphabet
def test_the_tokens_of_an_alphabet_are_those_of_o200k(alphabet: Alphabet, o200k):
    assert o200k(alphabet.text(BYTES)) == alphabet.tokens


@each_alphabet
def test_each_part_of_a_text_of_one_alphabet_costs_as_much_as_any_other(alphabet: Alphabet, o200k):
    part = alphabet.text(LONG)[1_000:3_000]
    assert o200k(part) == pytest.approx(len(part) * alphabet.rate, rel=0.03)


@each_alphabet
def test_a_text_that_was_truncated_to_fit_does_fit(alphabet: Alphabet):
    context = Context("gpt-4o", context_window=WINDOW)
    context.add({"role": "user", "content": alphabet.text(LONG)})
    try:
        request = context.request()
    except CannotFit:
        return  # said aloud
    characters = set(alphabet.characters + alphabet.marks)
    kept = sum(character in characters for character in request["messages"][-1]["content"])
    # Three parts in a hundred are for how much one part of the text may differ from another.
    assert int(kept * alphabet.rate * 0.97) + request["max_completion_tokens"] <= WINDOW
