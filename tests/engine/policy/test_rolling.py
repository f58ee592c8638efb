"""`rolling`: a sliding window of messages over one rolling summary."""

from hashlib import sha256

import pytest

from tests.conversations import (
    calls,
    chat,
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
from tests.recording import decide, request_anyway
from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.budget import build_budget
from trimtab.engine.policy.config import (
    PolicyConfig,
)
from trimtab.engine.policy.planning.plan import MessageSpan
from trimtab.engine.policy.presets import (
    POLICY_NAMES,
    build_rolling_policy,
)
from trimtab.engine.summaries.format import format_verbatim_list, split_summary
from trimtab.errors import UnusableSummary

SUMMARY = "[Summary of the earlier conversation, for reference: the newest user message wins]\n"


def summary(request):
    """What the summary tells, apart from the first question that is kept."""
    first = contents(request)[0].partition("\n\nquestion ")[0]
    if not first.startswith(SUMMARY):
        return None
    return "\n".join(line.removeprefix(" ") for line in first.removeprefix(SUMMARY).splitlines())


def test_the_stand_in_tells_what_was_asked_answered_called_and_found():
    context = chat("rolling")
    context.add(user("Where is the bug?"))
    context.add(calls("c1", arguments='{"path":"a.py"}'))
    context.add(result("c1", "line 7: off by one\n" + prose(400)))
    context.add(said("In a.py."))
    talk(context, 6, size=100)
    told = summary(request_anyway(context))
    assert told is not None
    assert told.splitlines()[:4] == [
        "- user: Where is the bug?",
        '- called read {"path":"a.py"}',
        "- result: line 7: off by one",
        "- assistant: In a.py.",
    ]


def test_the_next_summary_carries_the_last_one_on():
    context = chat("rolling")
    talk(context, 8, size=200)
    request_anyway(context)
    talk(context, 8, size=200, start=8)
    told = summary(request_anyway(context))
    assert told is not None
    assert "- user: question 0" in told
    assert "- user: question 8" in told
    assert texts(request_anyway(context)).count(SUMMARY) == 1


def test_a_summary_never_takes_more_than_500_tokens_and_keeps_what_was_asked_first():
    context = chat("rolling")
    talk(context, 100, size=300)
    told = summary(request_anyway(context))
    assert told is not None
    body, listed = split_summary(told)
    assert context.window.counter.count(body) <= 500
    assert format_verbatim_list(listed) == ""
    assert body.startswith("- user: question 0\n- user: question 1\n")
    assert "question 50" not in body
    assert body.splitlines()[-1] == "- user: question 93"


def test_with_summaries_by_hand_nothing_is_hidden_before_50_messages():
    context = chat("rolling", summaries="manual")
    talk(context, 24)
    request = request_anyway(context)
    assert len(request["messages"]) == 48
    wanted = context.pending_summary()
    assert wanted is not None
    assert len(wanted.messages) == 38
    assert wanted.prior_summary == ""


def test_at_50_messages_nobody_is_waited_for():
    context = chat("rolling", summaries="manual")
    talk(context, 25, size=100)
    request = request_anyway(context)
    assert len(request["messages"]) == 10
    told = summary(request)
    assert told is not None
    assert "- user: question 0" in told


def test_a_summary_that_is_given_replaces_what_was_wanted():
    context = chat("rolling", summaries="manual")
    talk(context, 10, size=200)
    request_anyway(context)
    context.add_summary("They asked ten things.")
    request = request_anyway(context)
    assert summary(request) == "They asked ten things."
    assert len(request["messages"]) == 10
    assert context.pending_summary() is None


def test_the_prior_summary_is_handed_on():
    context = chat("rolling", summaries="manual")
    talk(context, 10, size=200)
    context.add_summary("First part.")
    talk(context, 5, size=200, start=10)
    wanted = context.pending_summary()
    assert wanted is not None
    assert wanted.prior_summary == "First part."
    assert wanted.messages[0].text == prose(200, "question 5")


def test_a_given_summary_of_one_long_line_keeps_its_end():
    context = chat("rolling", summaries="manual")
    talk(context, 10, size=2_000)
    context.add_summary(prose(8_000) + " the end")
    told = summary(request_anyway(context))
    assert told is not None
    assert told.endswith(" the end")
    assert 400 < context.window.counter.count(told) <= 500


@pytest.mark.parametrize("text", ["", "  \n", prose(4_000)])
def test_a_summary_that_is_empty_or_not_smaller_is_refused_and_the_messages_stay(text):
    context = chat("rolling", summaries="manual")
    talk(context, 9, size=40)
    before = request_anyway(context)
    with pytest.raises(
        UnusableSummary,
        match=r"m2-m.* is (empty|not smaller than what it replaces: it has \d+ tokens)",
    ):
        context.add_summary(text)
    assert request_anyway(context) == before


def test_long_names_do_not_push_out_what_the_user_said_first():
    context = chat("auto", context_window=16_000, limits={"summary": {"max_tokens": 600}})
    context.add(user("Never touch invoices_2019."))
    for number in range(150):
        hashes = (sha256(f"{number} {n}".encode()).hexdigest() for n in range(8))
        context.add(said(f"commit {' '.join(hashes)}"))
        context.add(user(f"go on {number}"))
        request_anyway(context)
    summary = context.window.summary
    assert summary is not None
    assert summary.text.startswith("- user: Never touch invoices_2019.")
    assert context.window.counter.count(split_summary(summary.text)[0]) <= 600


def test_a_round_is_summarised_whole_or_not_at_all():
    context = chat("rolling")
    talk(context, 2, size=200)
    context.add(user("go"))
    context.add(calls("a", "b", "c"))
    for each in ("a", "b", "c"):
        context.add(result(each, prose(200)))
    request_anyway(context)
    context.add(said("done"))
    talk(context, 4, size=200, start=2)
    request = request_anyway(context)
    kept = [m["role"] for m in request["messages"]]
    assert summary(request) is not None
    assert kept[1] != "tool"
    assert kept.count("tool") in (0, 3)


def test_an_active_turn_of_many_messages_is_never_summarised_away():
    context = chat("rolling")
    context.add(user("go"))
    for number in range(40):
        use(context, f"c{number}", prose(200))
    request = request_anyway(context)
    [asked] = [m["content"] for m in request["messages"] if m["role"] == "user"]
    assert asked.endswith("\n\ngo")
    assert summary(request) is not None
    assert len(request["messages"]) < 20


def test_results_are_cut_to_8000_tokens():
    context = chat("rolling")
    context.add(user("go"))
    [shown] = results(use(context, "c1", prose(200_000)))
    assert "[truncated: kept first ~8000 of ~" in shown
    assert context.window.counter.count(shown) <= 8_000


def test_above_the_room_nobody_is_waited_for_however_few_the_messages():
    context = chat("rolling", summaries="manual", context_window=9_000, max_output_tokens=500)
    talk(context, 7, size=3_000)
    request = request_anyway(context)
    assert summary(request) is not None
    assert len(context.window.entries) == 14
    call = context.window.last_call
    assert call is not None
    assert call.body.bound + call.body.max_output <= 9_000


def test_where_the_newest_ten_are_over_the_room_the_oldest_of_them_are_summarised():
    context = chat("rolling", context_window=9_000, max_output_tokens=500)
    talk(context, 5, size=6_000)
    request = request_anyway(context)
    told = summary(request)
    assert told is not None
    assert {edit.op for edit in edits(context)} == {"summarise"}
    hidden = 10 - context.window.visible_messages
    assert 0 < hidden < 10
    for number in range(hidden // 2):
        assert f"- user: question {number}" in told
        assert f"- assistant: answer {number}" in told


def test_messages_that_are_shorter_than_a_summary_of_them_stay():
    context = chat("rolling")
    for number in range(10):
        context.add(user(f"{number}?"))
        context.add(said("Yes."))
    request = request_anyway(context)
    assert len(request["messages"]) == 20
    assert summary(request) is None


def edits(context):
    return [
        event.body
        for event in context.window.base.events_since_snapshot
        if isinstance(event.body, Edit)
    ]


def test_the_messages_at_which_nobody_is_waited_for_are_a_setting():
    context = chat("rolling", summaries="manual", limits={"summary": {"forced": 20}})
    talk(context, 9)
    assert not contents(request_anyway(context))[0].startswith(SUMMARY)
    talk(context, 1)
    assert contents(request_anyway(context))[0].startswith(SUMMARY)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("rolling", {}),
        ("thresholds", {"context_window": 8_000, "max_output_tokens": 500}),
        ("auto", {"context_window": 8_000, "max_output_tokens": 500}),
    ],
)
def test_a_cap_that_is_set_binds_the_stand_in_of_every_preset(policy, options):
    context = chat(policy, limits={"summary": {"max_tokens": 60}}, **options)
    talk(context, 40, size=1_000)
    request_anyway(context)
    summary = context.window.summary
    assert summary is not None
    body, listed = split_summary(summary.text)
    assert 20 < context.window.counter.count(body) <= 60
    assert context.window.counter.count(format_verbatim_list(listed)) <= 60


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_cap_that_is_set_binds_a_given_summary_in_every_preset(policy):
    context = chat(policy, limits={"summary": {"max_tokens": 60}})
    talk(context, 5, size=4_000)
    lines = [prose(40, f"line {number}") for number in range(50)]
    context.add_summary("\n".join(lines), span=MessageSpan(first=1, last=6))
    summary = context.window.summary
    assert summary is not None
    assert summary.text.endswith(lines[-1])
    body, listed = split_summary(summary.text)
    assert 20 < context.window.counter.count(body) <= 60
    assert context.window.counter.count(format_verbatim_list(listed)) <= 60


def test_a_given_summary_that_is_longer_than_what_it_replaces_is_refused_and_not_cut():
    context = chat("rolling", summaries="manual")
    talk(context, 10, size=300)
    wanted = context.pending_summary()
    assert wanted is not None
    assert wanted.replaced_tokens > wanted.max_tokens
    with pytest.raises(UnusableSummary, match="not smaller than what it replaces"):
        context.add_summary("word " * wanted.replaced_tokens)
    assert context.window.summary is None


def test_nothing_is_wanted_while_the_window_is_not_full():
    context = chat("rolling", summaries="manual")
    talk(context, 7)
    assert context.pending_summary() is None
    with pytest.raises(UnusableSummary, match="no messages are waiting"):
        context.add_summary("too early")


def test_an_explicit_mask_binds():
    context = chat("rolling", limits={"tool_result_keep_first": 0, "tool_result_keep_last": 1})
    context.add(user("go"))
    use(context, "c1", prose(400))
    assert results(use(context, "c2", "ok")) == ["[result masked — ~100 tokens removed]", "ok"]


def test_a_decision_says_how_large_a_summary_may_be():
    context = chat("rolling")
    budget = build_budget(context.window.settings, learned_limit=None, ratio=1.0, margin=0.15)
    assert build_rolling_policy(PolicyConfig())(context.window, budget).summary_tokens == 500


@pytest.mark.parametrize("compact", [request_anyway, Context.compact])
def test_a_summary_has_no_list_unless_its_tokens_are_set(compact):
    for limits, has_list in (({}, False), ({"summary": {"list_tokens": 100}}, True)):
        context = chat("rolling", limits=limits)
        context.add(user("Read it."))
        use(context, "a", " ".join(f"name_{n}_x" for n in range(50)))
        talk(context, 8, size=200)
        compact(context)
        assert context.window.summary is not None
        assert bool(split_summary(context.window.summary.text)[1].items) == has_list


@pytest.mark.parametrize(
    ("names", "low", "high"), [(50, 1, 500), (3_000, 501, 3_999), (12_000, 3_900, 4_000)]
)
def test_in_other_presets_the_list_beside_a_summary_grows_with_what_is_replaced(names, low, high):
    context = chat("thresholds", limits={"max_tool_result_tokens": 1_000_000})
    context.add(user("Read it."))
    use(context, "a", " ".join(f"name_{n}_x" for n in range(names)))
    talk(context, 8, size=200)
    context.compact()
    edit = context.window.summary
    assert edit is not None
    assert (
        low
        <= context.window.counter.count(format_verbatim_list(split_summary(edit.text)[1]))
        <= high
    )
    told = split_summary(edit.text)[1].items
    talk(context, 8, size=200, start=8)
    context.compact()
    after = context.window.summary
    assert after is not None
    assert after is not edit
    # Little was said since: what was listed stays, but for what newer items take the room of.
    assert len({*told} - {*split_summary(after.text)[1].items}) <= 2


@pytest.mark.parametrize("cap", range(30, 120, 10))
def test_a_history_cap_holds_for_the_summary_that_was_just_made(cap):
    """A summary may take more bytes than short messages did, though fewer tokens."""
    context = chat("rolling", limits={"max_history_tokens": cap})
    for number in range(7):
        context.add(user(f"{number}?"))
        context.add(calls(f"c{number}"))
        context.add(result(f"c{number}", "ok"))
    context.add(user("And now?"))
    request_anyway(context)
    assert context.window.summary is not None
    assert decide(context) == []
