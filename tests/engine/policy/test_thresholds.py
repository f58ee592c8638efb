"""`thresholds`: summarise at 70 % of the window, trim at 90 %."""

import re
from typing import Any

import pytest

from tests.conversations import (
    calls,
    chat,
    claude,
    contents,
    prose,
    result,
    results,
    said,
    talk,
    texts,
    use,
    user,
)
from tests.recording import request_anyway
from trimtab.engine.log.message import make_text_message
from trimtab.engine.summaries.extract import extract_summary
from trimtab.engine.tokens.counter import BYTES_4_COUNTER

SUMMARY = "[Summary of the earlier conversation, for reference: the newest user message wins]\n"
SMALL: dict[str, Any] = {"context_window": 20_000, "max_output_tokens": 500}


def exact(policy: Any = "thresholds", **options):
    """Tokens are counted as words, so that shares of the window can be hit exactly."""
    return chat(policy, tokenizer=lambda text: len(text.split()), **{**SMALL, **options})


def fill(context, messages, words):
    for number in range(messages):
        text = f"message {number} " + "word " * (words - 2)
        context.add(said(text) if number % 2 else user(text))


@pytest.mark.parametrize(("words", "used"), [(493, 14_000), (494, 14_001)])
def test_70_percent_of_the_window_is_where_summaries_begin(words, used):
    context = exact()
    fill(context, 27, 496)
    context.add(said("word " * words))
    assert context.report().used == used
    assert (SUMMARY in texts(request_anyway(context))) == (used > 14_000)


def test_with_summaries_by_hand_70_percent_only_asks():
    context = exact(summaries="manual")
    fill(context, 60, 240)
    assert len(request_anyway(context)["messages"]) == 60
    wanted = context.pending_summary()
    assert wanted is not None
    assert len(wanted.messages) == 50


def test_with_summaries_by_hand_90_percent_no_longer_waits():
    context = exact(summaries="manual")
    fill(context, 76, 240)
    request = request_anyway(context)
    assert contents(request)[0].startswith(SUMMARY)
    assert len(request["messages"]) == 10


@pytest.mark.parametrize(("words", "used"), [(1_793, 18_000), (1_794, 18_001)])
def test_90_percent_of_the_window_is_where_the_safety_trim_begins(words, used):
    context = exact()
    fill(context, 9, 1_796)
    context.add(user("word " * words))
    assert context.report().used == used
    assert (SUMMARY in texts(request_anyway(context))) == (used > 18_000)
    assert (context.report().used <= 14_000) == (used > 18_000)


@pytest.mark.parametrize(("words", "used"), [(493, 18_000), (494, 18_001)])
def test_90_percent_of_the_window_is_where_nobody_is_waited_for(words, used):
    context = exact(summaries="manual")
    fill(context, 35, 496)
    context.add(user("word " * words))
    assert context.report().used == used
    assert (context.pending_summary() is None) == (used > 18_000)
    assert (SUMMARY in texts(request_anyway(context))) == (used > 18_000)


def test_where_the_newest_ten_are_over_90_percent_the_oldest_of_them_are_summarised():
    context = exact()
    fill(context, 10, 1_850)
    front, *kept = contents(request_anyway(context))
    assert front.startswith(SUMMARY)
    assert [text.split()[1] for text in kept] == ["3", "4", "5", "6", "7", "8", "9"]
    assert all(f"message {number} " in front for number in range(3))
    assert context.report().share <= 0.7


def test_the_safety_trim_drops_what_no_summary_could():
    """A summary of three tiny messages would be larger than they are."""
    context = exact()
    for text in ("one two three four five", "six seven eight nine ten") * 2:
        context.add(said(text) if text.startswith("six") else user(text))
    context.add(user("word " * 17_980))
    shown = contents(request_anyway(context))
    assert shown[0].startswith("[conversation truncated — 4 older messages omitted]")
    assert SUMMARY not in texts(request_anyway(context))


def test_a_threshold_is_never_above_the_room():
    context = chat("thresholds", context_window=20_000, max_output_tokens=12_000)
    talk(context, 40, size=1_000)
    budget = context.budget()
    assert budget.tokens_at_share(0.9) == budget.tokens_at_share(0.7) == budget.room
    request_anyway(context)
    assert context.window.tokens <= budget.room


def test_of_a_window_of_200000_tokens_the_room_is_less_than_90_percent():
    budget = claude("thresholds", model="claude-sonnet-4-5", context_window=None).budget()
    assert (budget.limit, budget.max_output) == (200_000, 8_192)
    assert budget.tokens_at_share(0.7) == 140_000 - budget.head.tokens
    assert budget.tokens_at_share(0.9) == budget.room == 163_935


@pytest.mark.parametrize(("words", "whole"), [(501, True), (505, True), (506, False)])
def test_a_cut_that_would_not_make_an_output_smaller_is_not_made(words, whole):
    """Tokens are counted as words; 500 words of 16 characters are 8,000."""
    context = exact()
    context.add(user("go"))
    text = "fifteen-letters " * words
    [shown] = results(use(context, "c1", text))
    assert (shown == text) == whole
    assert shown.endswith("[truncated: kept first ~2000 of ~2024 tokens (head)]") == (not whole)
    assert len(shown.split()) <= 505


def test_of_one_message_only_1000_characters_are_looked_at():
    behind = make_text_message("user", "\n" * 1_000 + "too far")
    before = make_text_message("user", "\n" * 900 + "near enough")
    assert extract_summary("", [behind, before], BYTES_4_COUNTER) == "- user: near enough"


def test_nothing_is_masked_unless_it_is_asked_for():
    context = chat("thresholds")
    context.add(user("go"))
    request = {}
    for number in range(20):
        request = use(context, f"c{number}", prose(400))
    assert results(request) == [prose(400)] * 20


@pytest.mark.parametrize("policy", ["thresholds", "rolling", "full", "compact", "layered"])
def test_an_explicit_result_cap_binds_in_every_preset(policy):
    context = chat(policy, limits={"max_tool_result_tokens": 50})
    context.add(user("go"))
    [shown] = results(use(context, "c1", prose(4_000)))
    assert "kept first ~50 of ~" in shown


@pytest.mark.parametrize("policy", ["thresholds", "rolling", "full", "compact", "layered"])
def test_an_explicit_result_cap_in_characters_binds_in_every_preset(policy):
    own = {"max_tool_result_chars": 200, "tools": {"look": {"max_tool_result_tokens": 500}}}
    context = chat(policy, limits=own)
    context.add(user("go"))
    [shown] = results(use(context, "c1", "é" * 400))
    assert len(shown) <= 200
    assert shown.startswith("é" * 130)
    context.add(calls("c2", tool="look"))
    context.add(result("c2", prose(900)))
    assert results(request_anyway(context))[-1] == prose(900)


def test_a_cap_in_characters_is_told_in_tokens_where_lines_are_kept():
    context = chat("auto", limits={"max_tool_result_chars": 2_000})
    context.add(user("go"))
    [shown] = results(use(context, "c1", "\n".join(f"line {n} of it" for n in range(2_000))))
    assert 1_500 <= len(shown) <= 2_000
    kept, total = re.findall(r"~(\d+)", shown.partition("\n")[0])[:2]
    assert 350 <= int(kept) <= 500
    assert 7_000 <= int(total) <= 9_000


@pytest.mark.parametrize("policy", ["thresholds", "rolling", "full", "compact", "layered"])
def test_an_explicit_history_cap_binds_in_every_preset(policy):
    context = chat(policy, limits={"max_history_tokens": 100})
    talk(context, 4, size=400)
    context.add(user("now"))
    shown = contents(request_anyway(context))
    assert shown == ["[conversation truncated — 8 older messages omitted]", "now"]


@pytest.mark.parametrize("policy", ["thresholds", "rolling", "full", "layered"])
def test_explicit_keeps_bind_in_every_preset(policy):
    context = chat(policy, limits={"tool_result_keep_first": 1, "tool_result_keep_last": 1})
    context.add(user("go"))
    request = {}
    for number in range(4):
        request = use(context, f"c{number}", prose(400))
    masked = "[result masked — ~100 tokens removed]"
    assert results(request) == [prose(400), masked, masked, prose(400)]


@pytest.mark.parametrize("policy", ["thresholds", "rolling", "full", "compact", "layered"])
def test_an_exempt_tool_is_exempt_in_every_preset(policy):
    context = chat(
        policy, limits={"max_tool_result_tokens": 50, "tools": {"read": {"exempt": True}}}
    )
    context.add(user("go"))
    assert results(use(context, "c1", prose(4_000))) == [prose(4_000)]
