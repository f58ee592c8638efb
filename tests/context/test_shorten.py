"""`shorten`: one text, cut to a number of tokens."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab import shorten
from trimtab.engine.log.text_cuts import TextCap, TextCutter
from trimtab.engine.tokens.piecewise import make_piecewise_count

LOG = "\n".join(
    f"step {number}: ERROR: disk {number} is full" if number == 900 else f"step {number}: done"
    for number in range(2_000)
)


def test_a_text_that_fits_is_returned_unchanged():
    short = shorten(LOG, max_tokens=1_000_000)
    assert short.text == LOG
    assert short.kept == short.total


def test_both_ends_and_the_lines_with_errors_stay():
    short = shorten(LOG, max_tokens=400)
    lines = short.text.split("\n")
    assert lines[0].startswith("[shortened: ~")
    assert lines[1] == "step 0: done"
    assert lines[-1] == "step 1999: done"
    assert "step 900: ERROR: disk 900 is full" in lines
    assert short.kept <= 400 < short.total


@pytest.mark.parametrize(
    ("keep", "first", "last"), [("head", True, False), ("tail", False, True), ("both", True, True)]
)
def test_one_end_or_both_ends_stay(keep, first, last):
    short = shorten(LOG, max_tokens=300, keep=keep)
    assert short.text.startswith("step 0: done\n") == first
    assert short.text.endswith("step 1999: done") == last
    assert f"({keep})" in short.text
    assert short.kept <= 300


def test_the_tokenizer_of_a_model_is_used():
    assert shorten(LOG, max_tokens=300, model="gpt-5.2").total != shorten(LOG, max_tokens=300).total


@given(
    text=st.text(st.characters(codec=None), max_size=400).map(lambda part: part * 20),
    max_tokens=st.integers(1, 400),
    keep=st.sampled_from(["auto", "head", "tail", "both"]),
)
def test_any_text_is_cut_to_the_maximum_or_to_its_indicator(text, max_tokens, keep):
    short = shorten(text, max_tokens=max_tokens, keep=keep)
    assert short.kept <= short.total
    if short.total <= max_tokens:
        assert short.text == text
    elif max_tokens >= 100:
        assert short.kept <= max_tokens * 1.1


def test_a_cap_of_a_policy_cuts_in_the_same_way():
    count = make_piecewise_count(None)
    cutter = TextCutter(cap=TextCap(amount=400, strategy="lines"), count_tokens=count)
    cut = cutter.cut(LOG, count(LOG))
    assert shorten(LOG, max_tokens=400).text.startswith(f"{cut.words}\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_tokens": 0}, ValueError),
        ({"max_tokens": None}, TypeError),
        ({"max_tokens": "9"}, TypeError),
        ({"max_tokens": 9, "keep": "middle"}, ValueError),
    ],
)
def test_an_invalid_argument_is_named(arguments, error):
    with pytest.raises(error, match=r"max_tokens|keep"):
        shorten("text", **arguments)


def test_bytes_are_refused():
    with pytest.raises(TypeError, match="bytes"):
        shorten(b"text", max_tokens=9)


@pytest.mark.process
def test_neither_a_context_nor_a_catalog_is_imported():
    program = (
        "import sys, trimtab; trimtab.shorten('line\\n' * 9_000, max_tokens=100);"
        "print([m for m in sys.modules if m.startswith(('trimtab.context', 'trimtab.models',"
        " 'trimtab.engine.window', 'trimtab.engine.policy', 'trimtab.engine.log.event'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
