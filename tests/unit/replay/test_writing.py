"""Summaries by a model in a replay: nobody is asked, the sizes are real."""

import pytest

from tests.conversations import chat, talk, user
from tests.unit.replay.talk import conversation
from trimtab.core.policies.awaiting import PROMPT_TOKENS
from trimtab.core.summary_text import ASKED_TOKENS, listed_text, split
from trimtab.replay.costs import SUMMARY_OUTPUT, cost
from trimtab.replay.providers import providers_for
from trimtab.replay.references import needs
from trimtab.replay.run import Setup, replay
from trimtab.replay.writing import write_summary

RULES = {provider.name: provider.rules for provider in providers_for("claude-sonnet-4-5")}
TALK = conversation("talk", 30, words=300)
BY_MODEL = Setup(name="model", options={"policy": "rolling", "summaries": "manual"})
BY_NOBODY = Setup(name="lines", options={"policy": "rolling"})


def test_what_the_policy_wants_is_summarised_at_the_size_that_is_asked_for():
    context = chat("rolling", summaries="manual")
    assert write_summary(context, forced=False) == (0, 0)
    talk(context, 12, size=900)
    wanted = context.wanted_summary()
    assert wanted is not None
    read, written = write_summary(context, forced=False)
    summary, counter = context.window.summary, context.window.counter
    assert summary is not None
    body, listed = split(summary.text)
    assert written == counter.count(body) <= ASKED_TOKENS
    assert counter.count(listed_text(listed)) <= wanted.list_tokens
    shown = sum(counter.count(message.text) for message in wanted.messages)
    assert PROMPT_TOKENS + shown < read < PROMPT_TOKENS + 1.5 * shown
    assert write_summary(context, forced=False) == (0, 0)
    context.add(user("And now?"))
    assert len(context.request()["messages"]) == 11


def test_a_summary_is_billed_once_with_what_was_read_and_written_for_it():
    calls = replay(TALK, BY_MODEL, RULES, needs(TALK.messages)).calls
    billed = [call for call in calls if call.summarised]
    assert 1 <= len(billed) < len(calls) / 2
    for call in billed:
        assert call.written is not None
        assert 0 < call.written <= ASKED_TOKENS
        rules = RULES["Anthropic"]
        less = cost(call, "Anthropic", rules)
        bare = call.bill["Anthropic"].cost(rules) + call.output * rules.output
        assert less - bare == pytest.approx((call.summarised + call.written * rules.output) / 3)


def test_where_no_model_writes_the_usual_is_assumed():
    calls = replay(TALK, BY_NOBODY, RULES, needs(TALK.messages)).calls
    assert any(call.summarised for call in calls)
    assert all(call.written is None for call in calls)
    assert SUMMARY_OUTPUT == 400
