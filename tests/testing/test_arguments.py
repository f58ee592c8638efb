"""Arguments are such that the tool's own schema accepts them."""

import jsonschema
import pytest

from trimtab.testing.arguments import call_of, fitting, offered

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
    jsonschema.validate(fitting(SCHEMAS[name], number), SCHEMAS[name])


def test_tools_are_called_in_turn_or_by_name():
    tools = offered([{"name": name, "input_schema": {}} for name in ("a", "b")])
    assert [call_of(tools, number).name for number in range(3)] == ["a", "b", "a"]
    assert call_of(tools, 1, "a").name == "a"
    with pytest.raises(ValueError, match="no tool 'c'"):
        call_of(tools, 1, "c")


def test_what_a_provider_runs_itself_is_not_called():
    assert offered([{"type": "web_search_20250305", "name": "web_search"}]) == []
