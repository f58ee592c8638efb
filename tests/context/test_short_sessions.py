"""In a window that is nearly empty a result is not cut without need, and one that is says so."""

import re

import pytest

from tests.context.user_texts import (
    call,
    common,
    filler,
    fits,
    numbers,
    person,
    result,
    talking,
)

_SAYS = re.compile(r"\b(cut|truncated|shortened|kept)\b", re.IGNORECASE)


def read(size, *, goal="balanced", window=200_000):
    """A question, one call, one result of so many tokens; the result as it is sent."""
    context, text = talking(window, goal=goal), filler(size, "file")
    context.add(person("What is in notes.txt?"))
    context.request()
    context.add(call("toolu_1", path="notes.txt"))
    context.add(result("toolu_1", text))
    request = context.request()
    assert fits(request, window)
    (sent,) = (
        block
        for message in request["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    )
    content = sent["content"]
    return text, content if isinstance(content, str) else content[0]["text"]


@pytest.mark.parametrize("goal", ["balanced", "quality"])
@pytest.mark.parametrize("size", [7_000, 30_000])
def test_a_large_result_in_an_empty_window_is_sent_whole(size, goal):
    text, sent = read(size, goal=goal)
    assert sent == text


@pytest.mark.parametrize("size", [150_000, 300_000])
@pytest.mark.parametrize("goal", ["cost", "balanced"])
def test_a_result_that_is_cut_says_so_in_its_first_line(size, goal):
    text, sent = read(size, goal=goal)
    assert len(sent) < len(text) or sent == text
    if sent == text:
        assert size < 160_000, "more than the window takes"
        return
    first, _, rest = sent.partition("\n")
    assert _SAYS.search(first), first[:200]
    assert any(0.9 <= number / size <= 1.1 for number in numbers(first)), first[:200]
    kept = (common(rest, text) + common(rest[::-1], text[::-1])) / 4
    assert any(0.9 <= number / kept <= 1.1 for number in numbers(first)), first[:200]


def test_a_result_that_fills_a_small_window_is_cut_to_what_the_question_leaves():
    text, sent = read(30_000, window=16_000)
    first, _, rest = sent.partition("\n")
    assert _SAYS.search(first), first[:200]
    assert common(rest, text) / 4 >= 1_000
