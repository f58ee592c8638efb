"""A refusal for length, a picture or a long summary does not cost the newest question."""

from __future__ import annotations

import pytest

from tests import pictures
from trimtab import Context
from trimtab.errors import CannotFit

QUESTION = "Do not touch the billing tables. Which of the replicas lags, and since when?"
PICTURE = f"data:image/png;base64,{pictures.text(pictures.png(1024, 768))}"
WORDS = "The replica follows the ledger and waits for the parser in the tunnel. "


def ask(context: Context, *, with_picture: bool = False) -> None:
    text = {"type": "text", "text": QUESTION}
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    content = [text, picture] if with_picture else QUESTION
    context.add({"role": "user", "content": content})


def call_a_tool(context: Context, number: int, result: str) -> None:
    function = {"name": "run_command", "arguments": "{}"}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    context.add({"role": "assistant", "content": None, "tool_calls": [call]})
    context.add({"role": "tool", "tool_call_id": call["id"], "content": result})


@pytest.mark.parametrize("limit", [None, 100_000])
@pytest.mark.parametrize("uses_tools", [False, True])
def test_a_short_question_is_whole_after_an_overflow(limit: int | None, uses_tools: bool):
    context = Context("gpt-4o", context_window=120_000)
    ask(context)
    context.request()
    if uses_tools:
        call_a_tool(context, 1, "three files")
        context.request()
    try:
        context.fail("overflow", limit=limit)
        request = context.request()
    except CannotFit:
        return  # said aloud
    assert QUESTION in str(request)


def test_a_short_question_is_whole_beside_a_picture_that_does_not_fit():
    context = Context("gpt-4o", context_window=2_500)
    ask(context, with_picture=True)
    assert QUESTION in str(context.request())


def test_a_short_question_is_whole_beside_a_long_summary_and_a_picture():
    context = Context("gpt-4o", policy="rolling", summaries="manual", context_window=60_000)
    for number in range(10):
        context.add({"role": "user", "content": f"Question {number}. {WORDS * 12}"})
        context.add({"role": "assistant", "content": f"Answer. {WORDS * 12}"})
    wanted = context.pending_summary()
    assert wanted is not None
    context.add_summary(f"- {WORDS}\n" * 20, span=wanted.span)
    context.configure(context_window=3_000)
    ask(context, with_picture=True)
    assert QUESTION in str(context.request())


def test_after_an_overflow_without_numbers_the_bound_is_lower_though_usage_was_exact():
    """The provider has counted what was said, and the agent has repeated all of it."""
    context = Context("gpt-4o")
    context.add({"role": "user", "content": WORDS * 70})
    context.request()
    function = {"name": "write_file", "arguments": f'{{"text": "{WORDS * 70}"}}'}
    call = {"id": "call_1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 920, "completion_tokens": 950}
    context.add({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})
    context.add({"role": "tool", "tool_call_id": "call_1", "content": "Written."})
    request = context.request()
    bound = context.report().bound
    try:
        context.fail("overflow")
        smaller = context.request()
    except CannotFit:
        return
    has_less_output = smaller["max_completion_tokens"] < request["max_completion_tokens"]
    assert has_less_output or context.report().bound < 0.99 * bound
