"""`view`: what a request shows, message by message, with its place in the caller's list."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.pictures import PNG_TEXT
from trimtab import Context, Message, ShownMessage, View, redactor
from trimtab.dialects.anthropic.codec import serialize_history
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.testing.server.openai_chat_rules import validate_chat_request
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.types import DialectName, PolicyName


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


def own_objects(messages: list[Any], shown: Sequence[ShownMessage]) -> list[Any]:
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


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5.2"])
def test_what_was_written_for_the_model_has_no_place_in_the_list(model: str):
    dialect: DialectName = "anthropic" if model.startswith("claude") else "openai_responses"
    context = Context(
        model, dialect=dialect, policy="auto", context_window=16_000, max_output_tokens=1_000
    )
    context.sync(chat(250, size=400))
    context.request()
    first = context.view()[0]
    assert (first.handle, first.positions, first.is_edited) == ("", (), True)
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


def test_results_in_another_order_are_the_callers_own():
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
    view = context.view()
    results = [one for one in view if one.message.role == "tool"]
    assert sent[-2:] == ["first", "second"]
    assert [one.message.results[0].text for one in results] == ["first", "second"]
    assert [one.positions for one in results] == [(3,), (2,)]
    assert all(one.is_callers_own and not one.edited_parts for one in view)
    assert not view.is_unchanged


def test_results_in_another_order_in_one_message_are_the_callers_own():
    calls = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "ba"]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Both."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [*results, {"type": "text", "text": "And hurry."}]},
    ]
    context = Context("claude-sonnet-4-5")
    context.sync(messages)
    request = context.request()
    view = context.view()
    assert [one.positions for one in view] == [(0,), (1,), (2,)]
    assert all(one.is_callers_own for one in view)
    assert [result.call_id for result in view[2].message.results] == ["b", "a"]
    assert [message for one in view for message in one.wire] == request["messages"]
    assert view.is_unchanged


def test_results_that_a_text_separates_are_one_message():
    calls = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in "ab"]
    first = {"type": "tool_result", "tool_use_id": "a", "content": "one"}
    second = {"type": "tool_result", "tool_use_id": "b", "content": "two"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Both."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [first, {"type": "text", "text": "And hurry."}]},
        {"role": "user", "content": [second]},
    ]
    context = Context("claude-sonnet-4-5")
    context.sync(messages)
    request = context.request()
    last = context.view()[-1]
    assert (last.positions, last.is_edited, last.edited_parts) == ((2, 3), True, frozenset())
    assert [result.call_id for result in last.message.results] == ["a", "b"]
    assert last.message.text == "And hurry."
    assert last.wire == request["messages"][-1:]


def test_what_was_added_alone_is_in_no_list():
    context = Context("gpt-4.1")
    context.add({"role": "user", "content": "Hello."})
    context.request()
    (shown,) = context.view()
    assert (shown.handle, shown.positions, shown.is_edited) == ("m2", (), False)


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


def make_chat_messages(message: Message) -> list[dict[str, Any]]:
    """Build messages as an agent does that has only Trimtab's message."""
    if message.results:
        return [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
            for result in message.results
        ]
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.calls
    ]
    said = {"role": message.role, "content": message.text}
    return [{**said, "tool_calls": calls} if calls else said]


def build_own_list(messages: list[dict[str, Any]], view: View) -> list[dict[str, Any]]:
    built: list[dict[str, Any]] = []
    for shown in view:
        if shown.is_callers_own:
            built += [messages[position] for position in shown.positions]
        else:
            built += make_chat_messages(shown.message)
    return built


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_strict_template_takes_a_list_that_is_built_from_the_view(policy: PolicyName):
    strict = ProviderSimulatorOptions(template="strict")
    context = Context(
        "qwen3",
        dialect="openai_chat",
        policy=policy,
        context_window=5_000,
        max_output_tokens=500,
        limits={"summary": {"keep": 11}} if policy == "rolling" else None,
    )
    messages: list[dict[str, Any]] = []
    for turn in range(25):
        messages.append({"role": "user", "content": f"Question {turn}. " * 40})
        if turn % 3 == 2:
            function = {"name": "read", "arguments": "{}"}
            call = {"id": f"call_{turn}", "type": "function", "function": function}
            text = f"line {turn} " * 200
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": text},
            ]
        context.sync(messages)
        request = context.request()
        view = context.view()
        built = build_own_list(messages, view)
        validate_chat_request({**request, "messages": built}, strict)
        assert built == request["messages"]
        messages.append({"role": "assistant", "content": f"Answer {turn}. " * 40})
    assert not context.view().is_unchanged


def test_messages_that_meet_because_others_are_hidden_are_one():
    messages: list[dict[str, Any]] = []
    for turn in range(40):
        messages += [
            {"role": "user", "content": f"Question {turn}. " * 20},
            {"role": "assistant", "content": f"Answer {turn}. " * 100},
        ]
    messages.append({"role": "user", "content": "And now?"})
    context = Context(
        "qwen3",
        dialect="openai_chat",
        policy="auto",
        context_window=5_000,
        max_output_tokens=500,
    )
    context.sync(messages[:3])
    context.request()
    pinned = context.view()[2].handle
    context.pin(pinned)
    context.sync(messages)
    request = context.request()
    view = context.view()
    joined = [shown for shown in view if len(shown.positions) > 1]
    assert build_own_list(messages, view) == request["messages"]
    assert [(shown.handle, shown.is_edited) for shown in joined] == [(pinned, True)]


def test_two_user_messages_in_a_row_in_the_callers_list_stay_two():
    messages = [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}]
    context = Context("qwen3", dialect="openai_chat")
    context.sync(messages)
    assert len(context.request()["messages"]) == 1
    view = context.view()
    assert view.is_unchanged
    assert [shown.positions for shown in view] == [(0,), (1,)]


def test_the_edited_parts_are_those_that_differ():
    calls = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in "ab"]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "short"},
        {"type": "tool_result", "tool_use_id": "b", "content": "long " * 4_000},
        {"type": "text", "text": "And hurry."},
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Both."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]
    context = Context("claude-sonnet-4-5", limits={"max_tool_result_tokens": 500})
    context.sync(messages)
    context.request()
    view = context.view()
    assert [shown.edited_parts for shown in view] == [frozenset(), frozenset(), frozenset({1})]
    assert not view.is_unchanged


def test_the_view_says_how_much_output_to_ask_for():
    context = Context("gpt-4.1", max_output_tokens=700)
    context.sync(chat(1))
    assert context.request()["max_completion_tokens"] == context.view().max_output_tokens == 700


def test_a_conversation_that_the_assistant_begins_gets_an_opening_for_claude():
    messages = [{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Hello."}]
    context = Context("claude-sonnet-4-5")
    context.sync(messages)
    request = context.request()
    view = context.view()
    assert [shown.positions for shown in view] == [(), (0,), (1,)]
    assert [message for shown in view for message in shown.wire] == request["messages"]
    assert not view.is_unchanged


def mark_end(message: dict[str, Any]) -> dict[str, Any]:
    """Mark a message of Claude's at its end, as an agent does that has only `has_cache_mark`."""
    content = message["content"]
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    )
    last = max(at for at, block in enumerate(blocks) if block["type"] != "thinking")
    blocks[last] = {**blocks[last], "cache_control": {"type": "ephemeral"}}
    return {**message, "content": blocks}


def as_claude_reads(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Texts as blocks, and messages of one role in a row as one, as the API joins them."""
    out: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if out and out[-1]["role"] == message["role"]:
            out[-1]["content"] += blocks
        else:
            out.append({"role": message["role"], "content": [*blocks]})
    return out


@pytest.mark.parametrize("policy", ["auto", "layered"])
def test_marks_by_the_view_are_those_of_the_request(policy: PolicyName):
    context = Context(
        "claude-sonnet-4-5", policy=policy, context_window=8_000, max_output_tokens=500
    )
    messages: list[dict[str, Any]] = []
    most = 0
    for turn in range(25):
        messages.append({"role": "user", "content": f"Question {turn}. " * 20})
        for number in range(turn % 4):
            name = f"call_{turn}_{number}"
            call = {"type": "tool_use", "id": name, "name": "read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": name, "content": f"line {turn} " * 99}
            thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
            messages += [
                {"role": "assistant", "content": [thought, call]},
                {"role": "user", "content": [result]},
            ]
        context.sync(messages)
        request = context.request()
        built: list[dict[str, Any]] = []
        view = context.view()
        most = max(most, sum(shown.has_cache_mark for shown in view))
        for shown in view:
            own = [messages[position] for position in shown.positions]
            one = own if shown.is_callers_own else serialize_history([shown.message])
            built += [mark_end(message) for message in one] if shown.has_cache_mark else one
        assert as_claude_reads(built) == request["messages"]
        messages.append({"role": "assistant", "content": f"Answer {turn}. " * 20})
    assert most > 1


def test_a_mark_of_the_callers_inside_a_message_is_not_at_its_end():
    first = {"type": "text", "text": "One.", "cache_control": {"type": "ephemeral"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [first, {"type": "text", "text": "Two."}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Go on."},
    ]
    context = Context("claude-sonnet-4-5", cache="off")
    context.sync(messages)
    context.request()
    assert [shown.has_cache_mark for shown in context.view()] == [False, False, False]


def test_a_provider_without_marks_has_none():
    context = Context("gpt-4.1")
    context.sync(chat(3))
    context.request()
    assert not any(shown.has_cache_mark for shown in context.view())


def test_the_places_follow_a_system_prompt_that_comes_into_the_list():
    context = Context("gpt-4.1", system="Be brief.")
    messages = chat(2)
    context.sync(messages[1:])
    context.request()
    assert context.view()[0].positions == (0,)
    context.sync(messages)
    context.request()
    view = context.view()
    found = own_objects(messages, view)
    assert all(one is other for one, other in zip(found, messages[1:], strict=True))
    assert view.is_unchanged
