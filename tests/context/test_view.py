"""`view`: what a request shows, message by message, with its place in the caller's list."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.pictures import PNG_TEXT
from trimtab import Context, DialectName, PolicyName, ShownMessage, redactor


def chat(results: int, size: int = 40) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read all of the files."},
    ]
    for number in range(results):
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"src/f{number}.py"})},
        }
        text = f"def part_{number}(): " + "pass " * size
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
        ]
    return messages


def own_objects(messages: list[Any], shown: list[ShownMessage]) -> list[Any]:
    return [messages[position] for one in shown for position in one.positions]


def test_what_was_not_edited_is_the_callers_own():
    messages = chat(5)
    context = Context("gpt-4.1")
    context.sync(messages)
    context.request()
    shown = context.view()
    assert not any(one.is_edited for one in shown)
    found = own_objects(messages, shown)
    assert len(found) == len(messages) - 1
    assert all(one is other for one, other in zip(found, messages[1:], strict=True))


@pytest.mark.parametrize("policy", ["auto", "layered", "compact", "rolling", "thresholds"])
def test_a_list_built_from_the_view_says_what_the_request_says(policy: PolicyName):
    messages = chat(60, size=400)
    context = Context("gpt-4.1", policy=policy, context_window=16_000, max_output_tokens=1_000)
    context.sync(messages)
    request = context.request()
    shown = context.view()
    assert any(one.is_edited for one in shown)
    built: list[str] = []
    for one in shown:
        if one.is_edited or not one.positions:
            texts = [result.text for result in one.message.results] or [one.message.text]
            built += texts
        else:
            built += [messages[position]["content"] or "" for position in one.positions]
    sent = [message["content"] or "" for message in request["messages"][1:]]
    assert "\n\n".join(built) == "\n\n".join(sent)


def test_what_was_written_for_the_model_has_no_place_in_the_list():
    messages = chat(250, size=400)
    context = Context("gpt-4.1", policy="auto", context_window=16_000, max_output_tokens=1_000)
    context.sync(messages)
    context.request()
    first = context.view()[0]
    assert (first.handle, list(first.positions), first.is_edited) == ("", [], True)
    assert all(one.handle for one in context.view() if one.positions)


def test_every_message_is_named_by_its_handle():
    messages = chat(3)
    context = Context("gpt-4.1")
    context.sync(messages)
    context.request()
    for one in context.view():
        (position,) = one.positions
        if said := messages[position]["content"]:
            assert said in context.recall(one.handle)


def test_some_items_of_responses_are_one_message():
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Read it."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
    ]
    context = Context("gpt-5.2", dialect="openai_responses")
    context.sync(items)
    context.request()
    shown = context.view()
    found = own_objects(items, shown)
    assert all(one is other for one, other in zip(found, items, strict=True))
    assert max(len(one.positions) for one in shown) == 3


def test_a_result_that_never_came_is_ours_alone():
    messages = [*chat(1)[:-1], {"role": "user", "content": "Never mind."}]
    context = Context("gpt-4.1")
    context.sync(messages)
    context.request()
    made = [one for one in context.view() if not one.positions]
    assert [one.message.role for one in made] == ["tool"]
    assert made[0].is_edited


def test_results_out_of_order_are_told_as_edited():
    calls = [
        {"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for name in ("a", "b")
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Both."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "second"},
        {"role": "tool", "tool_call_id": "a", "content": "first"},
    ]
    context = Context("gpt-4.1")
    context.sync(messages)
    sent = [message["content"] for message in context.request()["messages"]]
    results = [one for one in context.view() if one.message.role == "tool"]
    assert sent[-2:] == ["first", "second"]
    assert [one.message.results[0].text for one in results] == ["first", "second"]
    assert [list(one.positions) for one in results] == [[3], [2]]


def test_what_was_added_alone_is_in_no_list():
    context = Context("gpt-4.1")
    context.add({"role": "user", "content": "Hello."})
    context.request()
    (shown,) = context.view()
    assert (shown.handle, list(shown.positions), shown.is_edited) == ("m2", [], False)


def test_what_was_erased_is_not_sent_as_the_caller_still_has_it():
    messages = [
        {"role": "user", "content": "my SECRET"},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "Go on."},
    ]
    context = Context("gpt-4.1")
    context.sync(messages)
    context.request()
    context.erase(context.view()[0].handle)
    for _ in range(2):
        shown = context.view()
        assert not shown[0].is_callers_own
        assert "SECRET" not in shown[0].message.text
        context.sync(messages)
        context.request()
    assert [one.is_callers_own for one in context.view()] == [False, True, True]


def test_what_was_redacted_is_not_sent_as_the_caller_still_has_it():
    messages = [{"role": "user", "content": "account ACC-1234"}, {"role": "user", "content": "Go."}]
    context = Context("gpt-4.1", redact=redactor(re.compile(r"ACC-\d+")))
    context.sync(messages)
    context.request()
    assert [one.is_callers_own for one in context.view()] == [False, True]
    messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
    context.sync(messages)
    context.request()
    assert [one.is_callers_own for one in context.view()] == [False, True, True, True]


@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses"])
def test_a_recalled_picture_stays_though_the_list_has_its_words_alone(dialect: DialectName):
    picture = PNG_TEXT
    blocks: dict[str, Any] = {
        "anthropic": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": picture},
        },
        "openai_responses": {
            "type": "input_image",
            "detail": "auto",
            "image_url": f"data:image/png;base64,{picture}",
        },
    }
    asked = {"handle": "m2.0"}
    calls: dict[str, Any] = {
        "anthropic": {"type": "tool_use", "id": "r1", "name": "recall", "input": asked},
        "openai_responses": {
            "type": "function_call",
            "call_id": "r1",
            "name": "recall",
            "arguments": json.dumps(asked),
        },
    }
    models = {"anthropic": "claude-sonnet-4-6", "openai_responses": "gpt-5.2"}
    context = Context(models[dialect], dialect=dialect, recall=True)
    call = calls[dialect]
    messages: list[Any] = [
        {"role": "user", "content": [blocks[dialect]]},
        {"role": "assistant", "content": [call]} if dialect == "anthropic" else call,
    ]
    context.sync(messages[:1])
    context.request()
    context.sync(messages)
    text = context.answer(call)
    if dialect == "anthropic":
        result = {"type": "tool_result", "tool_use_id": "r1", "content": text}
        messages.append({"role": "user", "content": [result]})
    else:
        messages.append({"type": "function_call_output", "call_id": "r1", "output": text})
    context.sync(messages)
    assert json.dumps(context.request()).count(picture) == 2
    assert [one.is_callers_own for one in context.view()] == [True, True, False]


def test_a_loaded_context_does_not_know_the_callers_objects():
    context = Context("gpt-4.1")
    context.sync(chat(2))
    context.request()
    again = Context.load(context.dump())
    assert not any(one.is_callers_own for one in again.view())


def test_the_places_follow_the_list():
    messages = chat(4)
    context = Context("gpt-4.1")
    context.sync(messages)
    context.request()
    messages = [messages[0], {"role": "user", "content": "An earlier word."}, *messages[1:]]
    context.sync(messages)
    context.request()
    found = own_objects(messages, context.view())
    assert all(one is other for one, other in zip(found, messages[1:], strict=True))
