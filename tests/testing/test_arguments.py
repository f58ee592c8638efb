"""Arguments are such that the tool's own schema accepts them."""

import jsonschema
import pytest

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
