"""Arguments are such that the tool's own schema accepts them."""

import json
from typing import Any

import jsonschema
import pytest

from trimtab.testing.replies import ScriptedCall
from trimtab.testing.request_counter import RequestCounter
from trimtab.testing.server.script import ScriptStep
from trimtab.testing.server.script_step_replies import generate_reply
from trimtab.testing.tool_arguments import (
    build_tool_call,
    generate_schema_value,
    list_callable_tools,
)

SCHEMAS = {
    "nothing": {"type": "object", "properties": {}},
    "required and not": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 12},
            "mode": {"enum": ["r", "w"]},
            "lines": {"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 5}},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}},
            "maybe": {"anyOf": [{"type": "number", "exclusiveMinimum": 2}, {"type": "null"}]},
            "several": {"type": ["string", "null"], "maxLength": 3},
            "fixed": {"const": 7},
        },
        "required": ["path", "mode"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("number", range(7))
def test_made_arguments_are_valid(name, number):
    jsonschema.validate(generate_schema_value(SCHEMAS[name], number), SCHEMAS[name])


def test_tools_are_called_in_turn_or_by_name():
    tools = list_callable_tools([{"name": name, "input_schema": {}} for name in ("a", "b")])
    assert [build_tool_call(tools, number).name for number in range(3)] == ["a", "b", "a"]
    assert build_tool_call(tools, 1, "a").name == "a"
    with pytest.raises(ValueError, match="no tool 'c'"):
        build_tool_call(tools, 1, "c")


def test_what_a_provider_runs_itself_is_not_called():
    assert list_callable_tools([{"type": "web_search_20250305", "name": "web_search"}]) == []


TWO_TOOLS = [
    {"type": "function", "name": name, "parameters": SCHEMAS["required and not"]}
    for name in ("look", "final_result")
]


def generate(request: dict[str, Any], **step: Any):
    return generate_reply(
        ScriptStep(**step),
        request,
        seed=3,
        thinks=False,
        counter=RequestCounter(len),
        max_tokens=9_999,
        cut_stop_reason="length",
    ).reply


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ("required", "final_result"),
        ({"type": "any"}, "final_result"),
        ({"type": "tool", "name": "look"}, "look"),
        ({"type": "function", "function": {"name": "look"}}, "look"),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, "final_result"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required"}}, "final_result"),
        ("auto", None),
        ({"type": "auto"}, None),
        (None, None),
    ],
)
def test_filler_calls_the_tool_that_the_request_forces(choice, name):
    request = {"tools": TWO_TOOLS, "tool_choice": choice}
    reply = generate(request)
    assert [call.name for call in reply.calls] == ([] if name is None else [name])
    assert bool(reply.text) == (name is None)
    for call in reply.calls:
        jsonschema.validate(call.arguments, SCHEMAS["required and not"])
    assert generate(request, text="As written.").calls == ()
    other = ScriptedCall(name="other")
    assert generate(request, calls=(other,)).calls == (other,)


@pytest.mark.parametrize(
    "settings",
    [
        {"text": {"format": {"type": "json_schema", "schema": SCHEMAS["required and not"]}}},
        {"response_format": {"json_schema": {"schema": SCHEMAS["required and not"]}}},
        {"output_config": {"format": {"schema": SCHEMAS["required and not"]}}},
    ],
)
def test_filler_is_what_the_schema_of_the_request_demands(settings):
    jsonschema.validate(json.loads(generate(settings).text), SCHEMAS["required and not"])
    assert generate(settings, text="As written.").text == "As written."
