"""No text takes the square of its length: a tool may print whatever it likes."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import get_args

import pytest

from tests.conversations import chat, user
from tests.durations import ATTEMPTS, measure_cpu_s
from trimtab import Context
from trimtab.engine.log.message import make_text_message
from trimtab.engine.log.redaction import REDACTION_PATTERNS, redactor
from trimtab.engine.policy.planning import needs
from trimtab.engine.policy.presets import PolicyName
from trimtab.engine.recall import search
from trimtab.engine.recall.snippets import find_best_snippets
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
    *("-----BEGIN PRIVATE KEY-----", "-----END "),
)
SHORT, LONG = 2_000, 16_000
"""Characters; what is linear takes 8 times as long for the longer text, the square 64 times."""

READERS = {
    "items": find_named_items,
    "needs": lambda text: find_needed_facts([make_text_message("user", text)]),
    "inventions": lambda text: find_invented_items(text, ""),
    "orders": is_instruction_line,
    "a summary": split_summary,
    "cut words": lambda text: extract._CUT.sub("", text),
    "lines": needs.split_lines,
    "quotes": needs.list_quotes,
    "names of lines": identifiers.list_identifiers_by_line,
    "words": identifiers.count_identifiers,
    "search": search.split_index_words,
    "redaction": redactor(*REDACTION_PATTERNS),
}


def repeat(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_text_eight_times_as_long_takes_no_more_than_three_times_that(reader):
    slow: dict[str, object] = {}
    for unit in UNITS:
        short, long = (partial(READERS[reader], repeat(unit, size)) for size in (SHORT, LONG))
        short_s = measure_cpu_s(short)
        most_s = 24 * short_s + 0.05
        if (long_s := measure_cpu_s(long, enough_s=most_s)) > most_s:
            slow[unit] = short_s, long_s
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
    most_s = 24 * revealing(500) + 0.05
    assert any(revealing(4_000) < most_s for _ in range(ATTEMPTS))


HOSTILE_UNITS = {
    "one word": "a",
    "a dump of bytes": "deadbeef01",
    "Base64 for addresses": "aZ-9_",
    "a signed token": "eyJhbGciOi.",
    "a path": "a/",
    "an address": "https://a.b/",
    "colons": "::",
    "digits": "7",
    "line ends": "\n",
    "spaces": " ",
    "emoji": "😀",
    "from right to left": "\u05e2",
    "no spaces": "漢字",
    "open brackets": "([{",
    "quotes": "\"'",
    "backslashes": "\\",
    "errors": "Error: x\n",
    "escape codes": "\x1b[",
    "carriage returns": "a\r",
    "key headers": "-----BEGIN PRIVATE KEY-----",
    "reminders": "<system-reminder>",
    "commands for recall": "recall m1.0 ",
}
"""Texts that were sent to keep the process busy, and texts that tools print."""
STEPS_OF_A_POLICY = 30_000
"""Calls that a policy takes to hide a text, which it does with a long one alone."""
OTHER_POLICIES = [policy for policy in get_args(PolicyName) if policy != "auto"]
Measured = dict[str, float]
"""Work by operation."""
Meter = Callable[[], float]
"""Returns the work so far."""


def live(policy: PolicyName, text: str, meter: Meter) -> Measured:
    """Use a text everywhere: as a message, a result, a query and a pattern."""
    context = Context(
        model="claude-sonnet-5-5",
        policy=policy,
        recall=True,
        redact=redactor(*REDACTION_PATTERNS),
        context_window=200_000,
        max_input_tokens=24_000,
    )
    work: Measured = {}

    def measure(operation: str, act: Callable[[], object]) -> None:
        start = meter()
        act()
        work[operation] = work.get(operation, 0) + meter() - start

    def ask(name: str, **arguments: str) -> None:
        call = {"type": "tool_use", "id": f"c{context.window.seq}", "name": name}
        asked = {**call, "input": arguments}
        context.add({"role": "assistant", "content": [asked]})
        measure(name, lambda: context.answer(asked))

    measure("add", lambda: context.add(user(text)))
    measure("request", context.request)
    ask("search_history", query=f"a {text}")
    ask("recall", handle="m2.0", grep=text[:100])
    ask("recall", handle="m2", lines="2-9")
    measure("request", context.request)
    context.add({"role": "assistant", "content": text})
    measure("compact", context.compact)
    measure("add", lambda: context.add(user("and now?")))
    measure("request", context.request)
    measure("report", lambda: str(context.report()))
    measure("why", lambda: context.why("m2"))
    measure("load", lambda: Context.load(context.dump(), redact=str))
    return work


@contextmanager
def counting_calls() -> Generator[Meter]:
    """Count calls of functions, those of the standard library and in C included."""
    calls = 0

    def see(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("kind", HOSTILE_UNITS)
def test_passages_of_four_times_the_text_take_at_most_five_times_the_steps(kind):
    steps: list[float] = []
    for size in (5_000, 20_000):
        text = repeat(HOSTILE_UNITS[kind], size)
        query = search.Query(["a", text[:2], "eyjh"], text[:9])
        with counting_calls() as meter:
            find_best_snippets({1: make_text_message("user", text)}, query)
            steps.append(meter())
    assert steps[1] <= 5 * steps[0]


EVERY_KIND = [
    pytest.param(kind, marks=() if kind == "one word" else pytest.mark.slow)
    for kind in HOSTILE_UNITS
]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_four_times_the_text_takes_at_most_five_times_the_steps(kind):
    works: list[Measured] = []
    for size in (5_000, 20_000):
        with counting_calls() as meter:
            works.append(live("auto", repeat(HOSTILE_UNITS[kind], size), meter))
    short, long = works
    most = {each: 5 * short[each] + STEPS_OF_A_POLICY for each in short}
    assert {each: (short[each], long[each]) for each in long if long[each] > most[each]} == {}


@pytest.mark.slow
@pytest.mark.soak_on(*OTHER_POLICIES)
@pytest.mark.parametrize("policy", ["auto", *OTHER_POLICIES])
def test_four_times_the_text_takes_no_more_than_twice_that_under_any_policy(policy):
    slow = {kind: find_slow_operations(policy, unit) for kind, unit in HOSTILE_UNITS.items()}
    assert {kind: operations for kind, operations in slow.items() if operations} == {}


def find_slow_operations(policy: PolicyName, unit: str) -> dict[str, object]:
    """Operations that were slow each time: a busy machine is slow once."""
    slow: dict[str, object] = {}
    for attempt in range(ATTEMPTS):
        short, long = (
            live(policy, repeat(unit, size), time.process_time) for size in (10_000, 40_000)
        )
        slow = {
            each: (short[each], long[each])
            for each in (slow if attempt else long)
            if long[each] > 8 * short[each] + 0.05
        }
        if not slow:
            break
    return slow
