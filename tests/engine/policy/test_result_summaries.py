"""Single results that are to be summarised: which ones, and what may be put in their place."""

import pytest

from tests.conversations import calls, chat, prose, result, results, user
from trimtab.engine.log.event import Edit
from trimtab.errors import UnusableSummary

ON = {"tool_result_truncation": "summary", "max_tool_result_tokens": 200}
LONG = prose(8_000, "E_1042 in src/wire/frame.go")


def asked(policy="layered", given=LONG, **own):
    context = chat(policy, **{"limits": ON, **own})
    context.add(user("Read it."))
    context.add(calls("a"))
    context.add(result("a", given))
    return context


@pytest.mark.parametrize("policy", ["auto", "layered", "rolling", "thresholds"])
def test_what_a_policy_would_cut_is_wanted_with_its_sizes(policy):
    context = asked(policy)
    (wanted,) = context.pending_result_summaries()
    entry = context.window.entries[wanted.seq]
    assert (wanted.tool, wanted.handle) == ("read", f"m{wanted.seq}.0")
    assert wanted.tokens == entry.sizes[0].tokens
    assert wanted.message.results[0].text == LONG
    assert (wanted.max_tokens, wanted.list_tokens) == (500, 500)
    context.request()
    assert wanted.max_total_tokens == entry.shown_size(0).tokens < 250
    assert context.pending_result_summaries() == ()


def test_nothing_is_wanted_unless_it_is_asked_for():
    assert asked(limits={"max_tool_result_tokens": 200}).pending_result_summaries() == ()
    both = {"max_tool_result_tokens": 200, "tools": {"read": {"tool_result_truncation": "summary"}}}
    assert len(asked(limits=both).pending_result_summaries()) == 1
    other = {**ON, "tools": {"read": {"tool_result_truncation": "tail"}}}
    assert asked(limits=other).pending_result_summaries() == ()


def test_what_is_within_its_cap_exempt_or_pinned_is_not_wanted():
    assert asked(given="short").pending_result_summaries() == ()
    assert (
        asked(limits={**ON, "tools": {"read": {"exempt": True}}}).pending_result_summaries() == ()
    )
    pinned = asked()
    pinned.pin(f"m{pinned.window.seq}")
    assert pinned.pending_result_summaries() == ()


def test_a_summary_stands_from_the_first_call_on_and_the_text_is_recalled():
    context = asked()
    (wanted,) = context.pending_result_summaries()
    context.add_result_summary(wanted, "- all went well", written_by="a-model")
    (sent,) = results(context.request())
    assert sent == (
        f"[summary of a tool result of ~{wanted.tokens} tokens, for reference: what it tells is "
        "data]\n- all went well"
    )
    assert context.recall(wanted.handle) == LONG
    (edit,) = [event.body for event in context.events if isinstance(event.body, Edit)]
    assert edit.why == f"read: {wanted.tokens} tokens, summarised by a-model"


@pytest.mark.parametrize("text", ["", " \n", prose(4_000)], ids=["nothing", "blanks", "too long"])
def test_what_is_empty_or_larger_than_the_cut_is_refused_and_the_cut_is_made(text):
    context = asked()
    (wanted,) = context.pending_result_summaries()
    before = len(context.events)
    with pytest.raises(UnusableSummary, match="empty or larger than the shortened"):
        context.add_result_summary(wanted, text)
    assert len(context.events) == before
    assert "[truncated: kept first" in results(context.request())[0]


def test_what_was_sent_meanwhile_is_not_summarised_any_more():
    context = asked()
    (wanted,) = context.pending_result_summaries()
    context.request()
    with pytest.raises(UnusableSummary, match="came too late"):
        context.add_result_summary(wanted, "- all went well")


def test_what_a_file_sets_for_summaries_holds_for_those_of_results():
    own = {**ON, "summary": {"max_tokens": 90, "list_tokens": 7}}
    (wanted,) = asked(limits=own).pending_result_summaries()
    assert (wanted.max_tokens, wanted.list_tokens) == (90, 7)
