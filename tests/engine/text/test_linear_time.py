"""No text takes the square of its length: a tool may print whatever it likes."""

import time

import pytest

from tests.conversations import chat, user
from trimtab.engine.log.message import make_text_message
from trimtab.engine.log.redaction import REDACTION_PATTERNS, redactor
from trimtab.engine.policy.planning import relevance
from trimtab.engine.recall import search
from trimtab.engine.summaries import extract
from trimtab.engine.summaries.facts import (
    find_invented_items,
    find_named_items,
    find_needed_facts,
    is_instruction_line,
)
from trimtab.engine.summaries.format import split_summary
from trimtab.engine.text import identifiers

UNITS = (
    *("a", "1", "A ", "word ", "数据", ".", "/", "a/", "1,", "1.", "1 ", "12 ", "Ab ", "?", "a:"),
    *("-", "@", "a@", "a-", "sk-", "eyJ", "AB12 ", "a.", "\\", "https://", '"', "$1", "Jan ", "#"),
)
SHORT, LONG = 4_000, 32_000
"""Characters; what is linear takes 8 times as long for the longer text, the square 64 times."""

READERS = {
    "items": find_named_items,
    "needs": lambda text: find_needed_facts([make_text_message("user", text)]),
    "inventions": lambda text: find_invented_items(text, ""),
    "orders": is_instruction_line,
    "a summary": split_summary,
    "cut words": lambda text: extract._CUT.sub("", text),
    "paths": relevance._PATH.findall,
    "words": identifiers.count_identifiers,
    "search": search.split_index_words,
    "redaction": redactor(*REDACTION_PATTERNS),
}


def seconds(read, unit: str, size: int) -> float:
    text = (unit * (size // len(unit) + 1))[:size]
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        read(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_text_eight_times_as_long_takes_no_more_than_three_times_that(reader):
    slow = {
        unit: (short, long)
        for unit in UNITS
        if (long := seconds(READERS[reader], unit, LONG))
        > 24 * (short := seconds(READERS[reader], unit, SHORT)) + 0.05
    }
    assert slow == {}


def revealing(groups: int) -> float:
    """Seconds to show again so many messages that are hidden."""
    context = chat("full", context_window=3_000, max_output_tokens=300)
    for number in range(groups):
        context.add(user(f"question {number}"))
    context.request()
    start = time.process_time()
    context.reveal(f"m2-m{groups}")
    return time.process_time() - start


@pytest.mark.slow
def test_showing_all_again_takes_time_by_their_number():
    assert revealing(4_000) < 24 * revealing(500) + 0.05
