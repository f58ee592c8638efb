"""The work of a request, in texts measured and functions called. Seconds depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from trimtab import Context

Converse = Callable[[Context, int, int], None]
MEASURED: list[int] = []
"""Characters of each text that was measured."""


def count_tokens(text: str) -> int:
    """Count four characters as a token. A text that was cut takes a little more than its parts."""
    MEASURED.append(len(text))
    return -(-len(text) // 4) + 10 * text.count("[")


def make_context(policy: Any, window: int) -> Context:
    return Context(
        "gpt-4o",
        policy=policy,
        context_window=window,
        max_output_tokens=500,
        tokenizer=count_tokens,
        clock=lambda: 0.0,
    )


def chat(context: Context, start: int, turns: int) -> None:
    """Add turns of a question and a long answer."""
    for turn in range(start, start + turns):
        context.add({"role": "user", "content": f"What does part {turn} do?"})
        context.request()
        context.add({"role": "assistant", "content": f"Part {turn} " + "adds numbers. " * 30})


def loop(context: Context, start: int, rounds: int) -> None:
    """Add rounds of a call and its result."""
    if not start:
        context.add({"role": "user", "content": "Read all parts."})
    for number in range(start, start + rounds):
        context.request()
        function = {"name": "read", "arguments": f'{{"path": "/src/part_{number}.py"}}'}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        context.add({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"part_{number}: " + "some words of a file. " * 20
        context.add({"role": "tool", "tool_call_id": call["id"], "content": text})


def count_work(converse: Converse, context: Context, start: int) -> tuple[int, int, int]:
    """Return the texts measured, their characters, and the functions called, in 20 turns."""
    MEASURED.clear()
    calls = count_calls(lambda: converse(context, start, 20))
    return len(MEASURED), sum(MEASURED), calls


def count_calls(operation: Callable[[], object]) -> int:
    """Count the Python functions that are called."""
    calls = 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("policy", "converse"),
    [("full", chat), ("layered", chat), ("auto", loop), ("full", loop), ("thresholds", loop)],
)
def test_a_request_works_no_more_in_a_long_conversation(policy: str, converse: Converse) -> None:
    context = make_context(policy, 4_000)
    converse(context, 0, 100)  # the window is full
    early = count_work(converse, context, 100)
    converse(context, 120, 80)
    late = count_work(converse, context, 200)
    for before, after in zip(early, late, strict=True):
        assert after <= 1.25 * before
    functions_per_request = late[2] / 20
    assert functions_per_request < 2_500 + 20 * context.window.visible_messages


def test_a_request_measures_a_long_message_once_at_most() -> None:
    context = make_context("auto", 8_000)
    text = " ".join(f"word{number}" for number in range(60_000))
    context.add({"role": "user", "content": text})
    MEASURED.clear()
    context.request()
    assert sum(MEASURED) < len(text)


def _add_one(context: Context, _handles: list[str]) -> None:
    context.add({"role": "user", "content": "One more."})
    context.request()


@pytest.mark.parametrize(
    ("operation", "most"),
    [
        pytest.param(lambda c, h: c.erase(f"{h[0]}-{h[len(h) // 2 - 1]}"), 2.5, id="erase half"),
        pytest.param(lambda c, h: c.rewind(h[len(h) // 2]), 2.5, id="rewind to the middle"),
        pytest.param(lambda c, _: Context.load(c.dump()), 2.5, id="load"),
        pytest.param(lambda c, _: c.fork(), 2.5, id="fork"),
        pytest.param(lambda c, _: c.report(), 2.5, id="report"),
        pytest.param(_add_one, 1.5, id="add one and request"),
    ],
)
def test_work_grows_no_faster_than_the_conversation(
    operation: Callable[[Context, list[str]], object], most: float
) -> None:
    """What is done to all of a conversation takes twice the work for twice as many messages."""
    work: list[int] = []
    for messages in (32, 64):
        context = Context("gpt-4o", clock=lambda: 0.0)
        roles = ("user", "assistant")
        handles = [
            context.add({"role": roles[number % 2], "content": f"Message {number}."})
            for number in range(messages)
        ]
        _add_one(context, handles)
        work.append(count_calls(lambda c=context, h=handles: operation(c, h)))
    assert work[1] <= most * work[0]
