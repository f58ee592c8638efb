"""No text takes the square of its length: a tool may print whatever it likes."""

import time

import pytest

from trimtab.core import extract, search, uses, words
from trimtab.core.fidelity import invented, is_order, items_in, need_of
from trimtab.core.message import text_message
from trimtab.core.summary_text import split
from trimtab.redaction import PATTERNS, redactor

UNITS = (
    *("a", "1", "A ", "word ", "数据", ".", "/", "a/", "1,", "1.", "1 ", "12 ", "Ab ", "?", "a:"),
    *("-", "@", "a@", "a-", "sk-", "eyJ", "AB12 ", "a.", "\\", "https://", '"', "$1", "Jan ", "#"),
)
SHORT, LONG = 4_000, 32_000
"""Characters; what is linear takes 8 times as long for the longer text, the square 64 times."""

READERS = {
    "items": items_in,
    "needs": lambda text: need_of([text_message("user", text)]),
    "inventions": lambda text: invented(text, ""),
    "orders": is_order,
    "a summary": split,
    "cut words": lambda text: extract._CUT.sub("", text),
    "paths": uses._PATH.findall,
    "words": words.words,
    "search": search.words_of,
    "redaction": redactor(*PATTERNS),
}


def seconds(read, unit: str, size: int) -> float:
    text = (unit * (size // len(unit) + 1))[:size]
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        read(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize("reader", READERS)
def test_a_text_eight_times_as_long_takes_no_more_than_three_times_that(reader):
    slow = {
        unit: (short, long)
        for unit in UNITS
        if (long := seconds(READERS[reader], unit, LONG))
        > 24 * (short := seconds(READERS[reader], unit, SHORT)) + 0.05
    }
    assert slow == {}
