"""A knob that a user sets wins over the words that would stay, and the report says so."""

import pytest

from tests.context.user_texts import (
    SUMMARY,
    fits,
    listed,
    outside,
    person,
    rules,
    talking,
    texts_of,
    tokens,
    told,
    turns,
)

SAID = rules(100)
"""1,500 tokens."""
LONG = [f"{rule} {'And mind the rest of it as well. ' * 10}" for rule in SAID]
"""Ten thousand tokens."""


def asked(context, said):
    turns(context, said, size=300)
    context.add(person("What did I forbid?"))
    return context.request()


@pytest.mark.slow
def test_words_stay_within_a_history_cap_that_is_set():
    context = talking(64_000, limits={"max_history_tokens": 2_000})
    request = asked(context, LONG)
    *history, newest = request["messages"]
    *before, last = list(texts_of(newest))
    assert fits(request, 64_000)
    assert last == "What did I forbid?"
    assert sum(map(tokens, [*texts_of(history), *before])) <= 2_000
    assert [rule for rule in SAID if rule not in outside(request)], "the cap leaves no room for all"


@pytest.mark.slow
def test_the_report_says_that_a_history_cap_hides_the_users_words():
    context = talking(64_000, limits={"max_history_tokens": 2_000})
    asked(context, LONG)
    assert "max_history_tokens" in str(context.report().breakdown())


def test_words_stay_within_a_cap_of_summaries_that_is_set():
    context = talking(16_000, limits={"summary": {"max_tokens": 300}})
    request = asked(context, SAID)
    assert SUMMARY in told(request)
    assert tokens(listed(request)) <= 300 + 40, "the list and what frames it"
    assert [rule for rule in SAID if rule not in outside(request)], "the cap leaves no room for all"


def test_the_report_says_that_a_cap_of_summaries_hides_the_users_words():
    context = talking(16_000, limits={"summary": {"max_tokens": 300}})
    asked(context, SAID)
    assert "summary.max_tokens" in str(context.report().breakdown())


@pytest.mark.slow
@pytest.mark.parametrize("knobs", [None, {"max_history_tokens": 0}, {"tool_result_keep_last": 2}])
def test_without_a_cap_all_words_stay_and_the_report_names_none(knobs):
    context = talking(32_000, limits=knobs)
    request = asked(context, SAID)
    assert SUMMARY in told(request)
    assert [rule for rule in SAID if rule not in outside(request)] == []
    breakdown = str(context.report().breakdown())
    assert "max_history_tokens" not in breakdown
    assert "summary.max_tokens" not in breakdown


def test_a_cap_that_hides_no_words_is_not_named():
    context = talking(32_000, limits={"max_history_tokens": 20_000})
    context.add(person("Hello."))
    context.request()
    assert "max_history_tokens" not in str(context.report().breakdown())


def test_the_report_counts_the_words_that_are_listed():
    context = talking(32_000)
    request = asked(context, SAID)
    report = context.report()
    assert listed(request)
    assert tokens(listed(request)) <= report.used
    shown = sum(section.tokens for section in report.sections)
    assert shown >= sum(map(tokens, texts_of(request["messages"])))
