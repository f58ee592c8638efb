"""The checks of OpenAI's two formats take good requests and name what is wrong with others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.dialects.sdk_types import messages_of
from tests.pictures import PNG_TEXT
from tests.provider_rules import openai_chat, openai_responses
from tests.provider_rules.rules import rules_of

Wire = dict[str, Any]

URL = f"data:image/png;base64,{PNG_TEXT}"


def _function(name: str) -> Wire:
    return {"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def chat() -> Wire:
    parts = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": URL}}]
    request: Wire = {
        "model": "gpt-4o",
        "max_completion_tokens": 4_000,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [_function("a"), _function("b")]},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "Thanks."},
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "user", "content": "Why?"},
        ],
    }
    return copy.deepcopy(request)


def message(request: Wire, number: int) -> Wire:
    return request["messages"][number]


CHAT: dict[str, Callable[[Wire], object]] = {
    "there is at least one message": lambda r: r.update(messages=[]),
    "there is no parameter `thinking`": lambda r: r.update(thinking={}),
    "every parameter is known": lambda r: r.update(context_management={}),
    "every role is known": lambda r: message(r, 0).update(role="function"),
    "content is a text or a list of parts": lambda r: message(r, 6).update(content=None),
    "parts are such as the role may have": lambda r: message(r, 4).update(
        content=[{"type": "image_url", "image_url": {"url": URL}}]
    ),
    "a text part holds a text": lambda r: message(r, 4).update(content=[{"type": "text"}]),
    "calls are left out rather than null": lambda r: message(r, 5).update(tool_calls=None),
    "what other servers' models think is not sent": lambda r: message(r, 5).update(
        reasoning_content="Hm."
    ),
    "a list of calls is not empty": lambda r: message(r, 5).update(tool_calls=[]),
    "an assistant's message says or calls something": lambda r: message(r, 7).pop("refusal"),
    "ids of calls are unique in a message": lambda r: message(r, 2)["tool_calls"][0].update(id="b"),
    "an id of a call has at most 40 characters": lambda r: message(r, 2)["tool_calls"][0].update(
        id="a" * 41
    ),
    "a tool's name is of letters, digits, _ and -": lambda r: message(r, 2)["tool_calls"][0][
        "function"
    ].update(name="read file"),
    "the arguments of a call are a text": lambda r: message(r, 2)["tool_calls"][0][
        "function"
    ].update(arguments={}),
    "every call has its result before the next message": lambda r: r["messages"].pop(3),
    "every result has its call before it": lambda r: message(r, 2)["tool_calls"].pop(),
}
TEMPLATE: dict[str, Callable[[Wire], object]] = {
    "system messages stand before all others": lambda r: message(r, 6).update(role="system"),
    "no two user messages follow each other": lambda r: r["messages"].append(message(r, 6)),
    "no two assistant messages follow each other": lambda r: r["messages"].pop(6),
}


def responses() -> Wire:
    made = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    said = {"type": "output_text", "text": "I look.", "annotations": []}
    call = {"type": "function_call", "name": "read", "arguments": "{}"}
    output = {"type": "function_call_output"}
    pictures = [{"type": "input_image", "image_url": URL, "detail": "auto"}]
    request: Wire = {
        "model": "gpt-5",
        "store": False,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AAAA"},
            made | {"content": [said]},
            call | {"id": "fc_1", "call_id": "a"},
            call | {"id": "fc_2", "call_id": "b"},
            output | {"call_id": "b", "output": pictures},
            output | {"call_id": "a", "output": "one"},
            {"role": "user", "content": "And now?"},
        ],
    }
    return copy.deepcopy(request)


BELONGS = {"msg_1": "rs_1", "fc_1": "rs_1", "fc_2": "rs_1"}


def item(request: Wire, number: int) -> Wire:
    return request["input"][number]


RESPONSES: dict[str, Callable[[Wire], object]] = {
    "there is at least one item": lambda r: r.update(input=[]),
    "ids of items are unique": lambda r: item(r, 4).update(id="fc_1"),
    "every parameter is known": lambda r: r.update(reasoning_effort="low"),
    "every role is known": lambda r: item(r, 0).update(role="tool"),
    "content is a text or a list of parts": lambda r: item(r, 0).update(content=None),
    "parts are such as the role may have": lambda r: item(r, 0)["content"][0].update(type="text"),
    "a tool's name is of letters, digits, _ and -": lambda r: item(r, 3).update(name=""),
    "the arguments of a call are a text": lambda r: item(r, 3).update(arguments={}),
    "a call_id has at most 64 characters": lambda r: item(r, 3).update(call_id="a" * 65),
    "the id of a call begins with fc": lambda r: item(r, 3).update(id="call_1"),
    "an output is a text or a list of parts": lambda r: item(r, 6).update(output=None),
    "parts are such as an output may have": lambda r: item(r, 5)["output"][0].update(type="image"),
    "every call_id is of one call": lambda r: item(r, 4).update(call_id="a"),
    "no call is answered twice": lambda r: item(r, 6).update(call_id="b"),
    "every output has its call before it": lambda r: r["input"].pop(4),
    "every call has its output": lambda r: r["input"].pop(6),
    "reasoning goes to models that reason": lambda r: r.update(model="gpt-4.1"),
    "reasoning is followed by what it led to": lambda r: r["input"].insert(
        2, {"role": "user", "content": "Wait."}
    ),
    "reasoning that is not stored is sent encrypted": lambda r: item(r, 1).pop("encrypted_content"),
    "an item stands with the reasoning it was made with": lambda r: r["input"].pop(1),
}


def found_in_responses(request: Wire) -> set[str]:
    reasons = request["model"] == "gpt-5"
    check = openai_responses.check(request, reasons=reasons, belongs=BELONGS)
    return {broken.rule for broken in check}


def found_in_chat(request: Wire) -> set[str]:
    both = (openai_chat.check(request), openai_chat.check_template(request))
    return {broken.rule for found in both for broken in found}


def test_a_good_request_breaks_no_rule():
    assert found_in_chat(chat()) == set()
    assert found_in_responses(responses()) == set()
    assert found_in_responses({"model": "gpt-5", "input": "Hello."}) == set()


@pytest.mark.parametrize("rule", [*CHAT, *TEMPLATE])
def test_what_breaks_a_rule_of_chat_completions_is_named(rule):
    request = chat()
    (CHAT | TEMPLATE)[rule](request)
    assert rule in found_in_chat(request)


@pytest.mark.parametrize("rule", RESPONSES)
def test_what_breaks_a_rule_of_responses_is_named(rule):
    request = responses()
    RESPONSES[rule](request)
    assert rule in found_in_responses(request)


def test_every_rule_has_an_example():
    known = {*CHAT, *TEMPLATE}
    for rule in rules_of(openai_chat):
        assert any(each.startswith(rule) for each in known), rule
    assert set(rules_of(openai_responses)) == set(RESPONSES)


@pytest.mark.slow
def test_the_good_requests_are_good_by_the_types_of_the_sdk():
    messages_of("openai_chat").validate_python(chat()["messages"])
    messages_of("openai_responses").validate_python(responses()["input"])
