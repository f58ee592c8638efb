"""`full`: keep everything; only what the user set and the final guard touch it."""

import pytest

from tests.conversations import chat, contents, prose, results, talk, use, user
from trimtab.engine.log.event import Edit


def edits(context):
    return [event.body for event in context.events if isinstance(event.body, Edit)]


def test_everything_is_sent_as_it_was_said():
    context = chat("full")
    talk(context, 60, size=2_000)
    context.add(user("go"))
    request = {}
    for number in range(20):
        request = use(context, f"c{number}", prose(50_000))
    assert results(request) == [prose(50_000)] * 20
    assert len(request["messages"]) == 161
    assert edits(context) == []


def test_above_the_limit_the_guard_drops_the_oldest():
    context = chat("full", context_window=20_000)
    talk(context, 60, size=2_000)
    context.add(user("now"))
    shown = contents(context.request())
    assert shown[0].startswith("[conversation truncated — ")
    assert shown[-1] == "now"
    assert {edit.why for edit in edits(context)} == {"guard: over the limit"}
    call = context.window.last_call
    assert call is not None
    assert call.body.bound + call.body.max_output <= 20_000


def test_an_unknown_policy_is_refused_with_the_choices():
    with pytest.raises(
        ValueError,
        match="unknown policy 'best'; choose one of full, layered, compact, rolling, thresholds",
    ):
        chat("best")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_tool_result_tokens": 0}, "max_tool_result_tokens is 0; it must be more than 0"),
        (
            {"max_tool_result_tokens": 9, "max_tool_result_chars": 9},
            "max_tool_result_tokens is 9 and max_tool_result_chars is 9; set only one of them",
        ),
        ({"max_tool_result_chars": 0}, "max_tool_result_chars is 0; it must be more than 0"),
        ({"summary": {"max_message_chars": 0}}, "summary.max_message_chars is 0; it must be more"),
        ({"max_tool_result_tokens": -1}, "max_tool_result_tokens is -1; it must be more than 0"),
        ({"max_history_tokens": -1}, "max_history_tokens is -1; it must be 0 or more"),
        ({"tool_result_keep_first": -1}, "tool_result_keep_first is -1; it must be 0 or more"),
        ({"tool_result_keep_last": -2}, "tool_result_keep_last is -2; it must be 0 or more"),
        ({"tool_result_truncation": "middle"}, "is 'middle'; choose one of head, tail, both"),
        ({"keeps": 3}, "unknown setting 'keeps' in limits; did you mean keep\\? known: keep, max_"),
        ({"tools": {"a": {"max_tool_result_tokens": 0}}}, "tools.a.max_tool_result_tokens is 0"),
        ({"tools": {"a": {"tool_result_truncation": "end"}}}, "is 'end'; choose one of head"),
        ({"tools": {"a": {"cap": 1}}}, "unknown setting 'tools.a.cap' in limits; known: exempt"),
        ({"summary": {"max": 1}}, "unknown setting 'summary.max' in limits; known: forced, keep"),
        ({"summary": {"max_tokens": 0}}, "summary.max_tokens is 0; it must be more than 0"),
        ({"summary": {"keep": 15}}, "summary.keep is 15 and summary.window is 15; summary.keep"),
        ({"summary": {"window": 60}}, "summary.window is 60 and summary.forced is 50; summary.f"),
        ({"thresholds": {"display": 0.3}}, "unknown setting 'thresholds.display' in limits"),
        ({"thresholds": {"trim": 90}}, "thresholds.trim is 90; it must be a share"),
        ({"thresholds": {"trim": 0.7}}, "summarise is 0.7 and thresholds.trim is 0.7; thresholds"),
        ({"thresholds": {"keep": 0}}, "thresholds.keep is 0; it must be more than 0"),
    ],
)
def test_a_wrong_knob_is_refused_when_it_is_set(given, said):
    with pytest.raises(ValueError, match=said):
        chat("full", limits=given)
