"""`auto` where a model writes the summaries: their price, and what does not wait for them."""

import pytest

from tests.conversations import calls, chat, prose, result, said, texts, user
from tests.recording import append
from trimtab.engine.log.event import Edit, SummaryAttempt, Usage
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.costs import (
    MAX_CALLS_AWAITING_SUMMARY,
    CompactionOffer,
    RelativeCachePrices,
    estimate_summary_cost_in_tokens,
    is_summary_unlikely,
)

pytestmark = pytest.mark.usefixtures("low_mark")

WARM = RelativeCachePrices(read_price=0.1, write_price=1.25, is_cold=False)
COLD = RelativeCachePrices(read_price=0.1, write_price=1.25, is_cold=True)


def offer(removed, rewrite, summary=0.0):
    return CompactionOffer(removed_tokens=removed, rewrite_price=rewrite, summary_price=summary)


def test_an_expensive_summary_never_beats_a_cheap_mask():
    masks, whole = offer(10_000, 1_000), offer(30_000, 5_000, 20_000)
    assert masks.beats(whole, WARM)
    assert not whole.beats(masks, WARM)


def test_a_cheap_summary_beats_masks_that_bring_little():
    assert offer(30_000, 5_000, 500).beats(offer(2_000, 5_000), WARM)


def test_on_a_cold_cache_only_the_summary_has_a_price():
    assert offer(30_000, 9e9, 100).beats(offer(20_000, 0), COLD)
    assert not offer(30_000, 0, 50_000).is_paid_by(0.0, 2.0, COLD)
    assert offer(30_000, 9e9, 100).is_paid_by(0.0, 2.0, COLD)


def test_the_meter_pays_for_the_rewriting_and_for_the_summary():
    whole = offer(30_000, 4_000, 1_000)
    assert not whole.is_paid_by(9_999, 2.0, WARM)
    assert whole.is_paid_by(10_000, 2.0, WARM)


def long_chat(turns, tools=False, **own):
    """A conversation of prose above the low-water mark, in which every call is warm."""
    context = chat(
        "auto", goal="cost", summaries="manual", model="claude-sonnet-4-5",
        dialect="anthropic", context_window=200_000, **own,
    )  # fmt: skip
    for number in range(turns):
        context.add(user(prose(1_200, f"question {number}")))
        context.request()
        if tools:
            context.add(calls(f"c{number}"))
            context.add(result(f"c{number}", prose(2_000, f"result {number}")))
            context.request()
        context.add(said(prose(1_200, f"answer {number}")))
    return context


def test_where_masks_do_not_reach_low_water_a_summary_is_wanted_and_nothing_is_edited():
    context = long_chat(70)
    wanted = context.pending_summary()
    assert wanted is not None
    assert context.window.summary is None
    assert context.window.visible_messages == 140
    assert context.window.policy_note is not None
    assert context.window.policy_note["waited"] >= 1
    assert wanted.max_tokens == 500
    context.add_summary("Facts:\n- all of it", span=wanted.span)
    context.add(user("And now?"))
    shown = texts(context.request())
    assert context.window.policy_note is None  # the meter is paid, nobody waits
    listed = context.window.conversation.user_words.measure_all_blocks(
        context.window.counter, recall_hint=""
    ).tokens
    assert context.window.tokens - listed < 14_000
    # What the user said stays, word for word: in its place, or in the list beside the mark.
    questions = [prose(1_200, f"question {number}") for number in range(70)]
    assert [shown.replace("\\n ", "\n").replace("\\n", "\n").count(each) for each in questions] == [
        1
    ] * 70


@pytest.mark.slow
def test_a_dear_summary_is_wanted_later_than_a_cheap_one():
    def first_wanted(price):
        context = long_chat(0, limits={"summary": {"price": price}})
        for number in range(90):
            context.add(user(prose(1_200, f"question {number}")))
            context.request()
            context.add(said(prose(1_200, f"answer {number}")))
            if context.pending_summary() is not None:
                return number
        return 90

    assert first_wanted(0.0) < first_wanted(0.3) < first_wanted(10.0)


def test_where_no_summary_comes_masks_do_not_wait_for_it():
    context = long_chat(60, tools=True)
    edits = [event.body for event in context.events if isinstance(event.body, Edit)]
    assert {edit.op for edit in edits} == {"mask"}
    assert context.window.summary is None


def test_a_summary_that_failed_lately_or_never_came_is_not_counted_on():
    context = long_chat(5)
    assert not is_summary_unlikely(context.window)
    append(context, SummaryAttempt(first=2, last=9, outcome="failed", usage=Usage(input=1)))
    assert is_summary_unlikely(context.window)
    waiting = long_chat(70)
    assert waiting.window.policy_note is not None
    assert waiting.window.policy_note["waited"] >= MAX_CALLS_AWAITING_SUMMARY
    assert is_summary_unlikely(waiting.window)


def test_forced_it_stands_in_and_says_what_for():
    context = long_chat(0, limits={"summary": {"price": 0.1}})
    context.configure(context_window=16_000)
    for number in range(40):
        context.add(user(prose(1_200, f"question {number}")))
        if context.pending_summary(forced=True) is not None:
            break
        context.request()
        context.add(said(prose(1_200, f"answer {number}")))
    forced = context.pending_summary(forced=True)
    assert forced is not None
    assert forced.messages[0].text.startswith("question 0")
    context.request()
    assert context.window.summary is not None
    assert context.window.summary.why.endswith("no model wrote it")


def test_the_price_is_that_of_what_is_shown_and_of_what_is_asked_for():
    context = long_chat(10)
    groups = list(context.window.visible_groups.values())
    knobs = parse_policy_config({"summary": {"price": 0.5}})
    shown = sum(min(group.tokens, 300 * group.message_count) for group in groups)
    assert estimate_summary_cost_in_tokens(context.window, groups, knobs) == 0.5 * (
        shown + 450 + 5 * 300
    )
    assert estimate_summary_cost_in_tokens(context.window, groups, parse_policy_config({})) == 0


@pytest.mark.parametrize("name", ["list_tokens", "price"])
def test_a_cap_below_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"summary.{name} is -1; it must be 0 or more"):
        parse_policy_config({"summary": {name: -1}})
