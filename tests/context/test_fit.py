"""`fit`: for people who keep their own list of messages."""

import json
from typing import Any

import pytest

from tests.conversations import calls, chat, prose, result, said, system, user
from trimtab import ContextReport, check, fit
from trimtab.engine.log.event import Edit, ToolResultRepair
from trimtab.errors import CannotFit

BIG: dict[str, Any] = {"model": "gpt-4o", "context_window": 1_000_000}
SMALL: dict[str, Any] = {
    "model": "gpt-4o",
    "context_window": 8_000,
    "max_output_tokens": 500,
}


def conversation(turns, size=300):
    messages = [system("Be brief.")]
    for turn in range(turns):
        messages += [
            user(prose(size, f"question {turn}")),
            calls(f"a{turn}", f"b{turn}"),
            result(f"a{turn}", prose(size)),
            result(f"b{turn}", prose(size * 4)),
            said(prose(size, f"answer {turn}")),
        ]
    return messages


def changes(fitted):
    """What was done to the messages: edits, and results put in for those that are missing."""
    return [e.body for e in fitted.context.events if isinstance(e.body, Edit | ToolResultRepair)]


def test_what_fits_is_returned_as_it_was_with_the_report_beside():
    messages = [system("Be brief."), user("hi"), said("Hello."), user("more")]
    fitted = fit(messages, **BIG)
    assert fitted.messages == messages
    assert fitted.request["messages"] == messages
    assert fitted.request["model"] == "gpt-4o"
    assert isinstance(fitted.report, ContextReport)
    assert fitted.report.hidden == {}


def test_the_callers_list_is_left_alone():
    messages = conversation(8)
    before = json.dumps(messages)
    fitted = fit(messages, model="gpt-4o", context_window=4_000, max_output_tokens=500)
    fitted.messages.append({})
    assert json.dumps(messages) == before


def test_what_is_too_large_is_made_to_fit():
    fitted = fit(
        [*conversation(20), user("now")],
        model="gpt-4o",
        context_window=4_000,
        max_output_tokens=500,
    )
    assert check(fitted.request) == []
    assert fitted.report.bound + 500 <= 4_000
    assert fitted.messages[0] == system("Be brief.")
    assert fitted.messages[-1] == user("now")
    assert sum(count for count, _ in fitted.report.hidden.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["layered", "compact", "rolling", "thresholds", "full"])
def test_between_edits_one_more_message_only_extends_what_is_sent(policy):
    messages = conversation(12)
    before = fit(messages[:2], policy=policy, **SMALL)
    extended = 0
    for count in range(3, len(messages) + 1):
        after = fit(messages[:count], policy=policy, **SMALL)
        if changes(after) == changes(before):
            assert after.messages[: len(before.messages)] == before.messages
            extended += 1
        before = after
    assert extended > 15


def test_fitting_again_gives_the_same():
    messages = conversation(10)
    assert fit(messages, **SMALL).messages == fit(messages, **SMALL).messages


def test_the_system_prompt_may_stand_in_the_list_or_beside_it():
    inside = fit([system("Be brief."), user("hi")], **BIG)
    beside = fit([user("hi")], system="Be brief.", **BIG)
    assert inside.messages == beside.messages


def test_an_anthropic_list_is_fitted_in_its_own_form():
    messages = [
        user("go"),
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": prose(90_000)}],
        },
    ]
    fitted = fit(messages, model="claude-sonnet-4-5", system="Be brief.", policy="layered")
    assert check(fitted.request) == []
    assert "[truncated: kept first ~8000 of ~22500 tokens (head)]" in str(fitted.messages[-1])
    assert fitted.messages is not fitted.request


def test_a_responses_list_is_fitted_in_its_own_form():
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    ]
    fitted = fit(items, model="gpt-4o", dialect="openai_responses")
    assert fitted.messages == items


def test_results_that_were_seen_are_masked_as_they_would_have_been():
    messages = [user("go")]
    for number in range(10):
        messages += [calls(f"c{number}"), result(f"c{number}", prose(400))]
    fitted = fit(messages, policy="layered", **BIG)
    masked = [
        m["content"].startswith("[result masked") for m in fitted.messages if "tool_call_id" in m
    ]
    assert masked == [False] * 2 + [True] * 3 + [False] * 5


def test_one_can_go_on_from_what_was_fitted():
    fitted = fit([user("hi"), said("Hello.")], **BIG)
    fitted.context.add(user("more"))
    assert fitted.context.request()["messages"][-1] == user("more")


def test_what_cannot_fit_is_said():
    with pytest.raises(CannotFit, match="system prompt and tools"):
        fit([system(prose(100_000)), user("hi")], model="gpt-4o", context_window=4_000)


def test_an_empty_list_is_refused():
    with pytest.raises(ValueError, match="messages is empty; pass the whole history"):
        fit([], model="gpt-4o")


def test_a_list_says_no_dates_that_nobody_knows_and_is_the_same_a_minute_later():
    history = [
        each
        for n in range(150)
        for each in (user(f"Question {n} {prose(300)}"), said(f"Answer {n} {prose(300)}"))
    ]
    noon = 1_800_000_000.0
    now, later = (
        fit([*history, user("Now?")], model="gpt-4o", context_window=16_000, clock=lambda at=at: at)
        for at in (noon, noon + 60)
    )
    text = str(now.messages[0])
    assert "older user messages are not shown" in text
    assert "UTC" not in text
    assert now.messages == later.messages


def test_messages_that_a_list_brought_have_no_date_after_later_ones_have_one():
    now = 1_800_000_000.0
    context = chat("auto", context_window=16_000, clock=lambda: now)
    history = [user(f"Old question {prose(400)}"), said("Old answer."), user("Newer question")]
    context.sync(history)
    for n in range(150):
        now += 3_600
        context.request()
        history += [said(f"Answer {n}"), user(f"Question {n} {prose(400)}")]
        context.sync(history)
    lines = str(context.request()["messages"][0])
    assert "older user messages are not shown" in lines
    assert "UTC" not in lines
