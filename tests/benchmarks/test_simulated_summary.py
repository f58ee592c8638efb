"""Summaries by a model in a replay: nobody is asked, the sizes are real."""

import pytest

from benchmarks.simulated_summary import add_simulated_summary
from tests.conversations import chat, talk, user
from tests.replay.conversations import conversation
from trimtab.engine.policy.costs import SUMMARY_PROMPT_TOKENS
from trimtab.engine.summaries.format import (
    REQUESTED_SUMMARY_TOKENS,
    format_verbatim_list,
    split_summary,
)
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.call_costs import SUMMARY_OUTPUT_TOKENS, compute_call_cost_in_input_tokens
from trimtab.replay.calls import ReplaySetup
from trimtab.replay.needs import find_needs
from trimtab.replay.runner import replay_conversation

RULES = {"Anthropic": get_provider_pricing("claude-sonnet-4-5").rules}
TALK = conversation("talk", 30, words=300)
BY_MODEL = ReplaySetup(
    name="model",
    options={"policy": "rolling", "summaries": "manual"},
    summarise=add_simulated_summary,
)
BY_NOBODY = ReplaySetup(name="lines", options={"policy": "rolling"})


def test_what_the_policy_wants_is_summarised_at_the_size_that_is_asked_for():
    context = chat("rolling", summaries="manual")
    assert context._run(add_simulated_summary(context._state, forced=False)) == (0, 0)
    talk(context, 12, size=900)
    wanted = context.pending_summary()
    assert wanted is not None
    read, written = context._run(add_simulated_summary(context._state, forced=False))
    summary, counter = context.window.summary, context.window.counter
    assert summary is not None
    body, listed = split_summary(summary.text)
    assert written == counter.count(body) <= REQUESTED_SUMMARY_TOKENS
    assert counter.count(format_verbatim_list(listed)) <= wanted.list_tokens
    shown = sum(counter.count(message.text) for message in wanted.messages)
    assert SUMMARY_PROMPT_TOKENS + shown < read < SUMMARY_PROMPT_TOKENS + 1.5 * shown
    assert context._run(add_simulated_summary(context._state, forced=False)) == (0, 0)
    context.add(user("And now?"))
    assert len(context.request()["messages"]) == 11


def test_a_summary_is_billed_once_with_what_was_read_and_written_for_it():
    calls = replay_conversation(TALK, BY_MODEL, RULES, find_needs(TALK.messages)).calls
    billed = [call for call in calls if call.summarised]
    assert 1 <= len(billed) < len(calls) / 2
    for call in billed:
        assert call.written is not None
        assert 0 < call.written <= REQUESTED_SUMMARY_TOKENS
        rules = RULES["Anthropic"]
        less = compute_call_cost_in_input_tokens(call, "Anthropic", rules)
        bare = call.bill["Anthropic"].cost(rules) + call.output * rules.output
        assert less - bare == pytest.approx((call.summarised + call.written * rules.output) / 3)


def test_where_no_model_writes_the_usual_is_assumed():
    calls = replay_conversation(TALK, BY_NOBODY, RULES, find_needs(TALK.messages)).calls
    assert any(call.summarised for call in calls)
    assert all(call.written is None for call in calls)
    assert SUMMARY_OUTPUT_TOKENS == 400
