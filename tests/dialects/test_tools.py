"""Tool definitions: any known form in each dialect's, and what is none."""

from typing import Any, cast

import pytest

from trimtab import Context
from trimtab.dialects import DIALECT_NAMES, get_dialect

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
FORMS = {
    "anthropic": {"name": "f", "description": "d", "input_schema": SCHEMA},
    "openai_chat": {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": SCHEMA},
    },
    "openai_responses": {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": SCHEMA,
        "strict": False,
    },
}


@pytest.mark.parametrize("source", DIALECT_NAMES)
@pytest.mark.parametrize("target", DIALECT_NAMES)
def test_a_tool_is_defined_in_any_dialect_s_form(source, target):
    (written,) = get_dialect(target).render_tools([FORMS[source]])
    function = written.get("function")
    if function is not None and source == "openai_responses" != target:
        assert function.pop("strict") is False
    assert written == FORMS[target]


FORM_OF_NONE = {
    "flat": {"name": "f", "description": "d", "parameters": SCHEMA},
    "mcp": {"name": "f", "description": "d", "inputSchema": SCHEMA, "annotations": {"a": 1}},
    "without a type": {"function": {"name": "f", "description": "d", "parameters": SCHEMA}},
}


@pytest.mark.parametrize("source", FORM_OF_NONE)
@pytest.mark.parametrize("target", DIALECT_NAMES)
def test_a_tool_may_be_defined_in_a_form_that_is_no_dialect_s(source, target):
    assert get_dialect(target).render_tools([FORM_OF_NONE[source]]) == [FORMS[target]]


NO_TOOLS: dict[str, Any] = {
    r"tools\[1\] has no schema; a tool is .*input_schema.*function.*inputSchema": {"name": "x"},
    r"tools\[1\] has no name; a tool is": {"description": "x"},
    r"tools\[1\] is builtin_function_or_method; a tool is": print,
    r"tools\[1\] is str; a tool is": "bash",
    r"tools\[1\] has str for its parameters": {"name": "x", "parameters": "x"},
    r"tools\[1\] has no name; a tool is .*function": {"type": "function", "function": {}},
    r"tools\[1\] has no name": {"type": "custom"},
    "two tools are called 'f'; tool names must be unique": FORM_OF_NONE["mcp"],
}


def test_a_tool_may_be_an_object_of_an_sdk():
    pydantic = pytest.importorskip("pydantic")

    class Defined(pydantic.BaseModel):
        name: str
        inputSchema: dict[str, Any]  # noqa: N815 - as MCP spells it

    (written,) = get_dialect("anthropic").render_tools(
        [cast("Any", Defined(name="f", inputSchema={}))]
    )
    assert written == {"name": "f", "input_schema": {}}
    with pytest.raises(ValueError, match=r"tools\[0\] is ModelMetaclass; a tool is"):
        get_dialect("anthropic").render_tools([cast("Any", Defined)])


@pytest.mark.parametrize("name", DIALECT_NAMES)
@pytest.mark.parametrize("why", NO_TOOLS)
def test_what_is_no_tool_is_refused_with_what_one_looks_like(name, why):
    with pytest.raises(ValueError, match=why):
        get_dialect(name).render_tools([FORMS["openai_chat"], NO_TOOLS[why]])


HOSTED: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "mcp_toolset", "mcp_server_name": "a"},
    ],
    "openai_chat": [
        {"type": "browser_search"},
        {"type": "web_search", "web_search": {"enable": True}},
        {"type": "builtin_function", "function": {"name": "$web_search"}},
    ],
    "openai_responses": [
        {"type": "web_search"},
        {"type": "web_search_preview_2025_03_11"},
        {"type": "mcp", "server_label": "a", "server_url": "https://a.example"},
        {"type": "mcp", "server_label": "b", "server_url": "https://b.example"},
    ],
}


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_provider_s_own_tools_are_passed_on(name):
    assert get_dialect(name).render_tools(HOSTED[name]) == HOSTED[name]


@pytest.mark.parametrize("source", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("target", DIALECT_NAMES)
def test_a_provider_s_own_tool_is_refused_for_another(source, target):
    if source == target:
        return
    for wire in HOSTED[source]:
        told = f"{wire['type']!r} is a provider's own tool: {source} has it, {target}"
        with pytest.raises(ValueError, match=told):
            get_dialect(target).render_tools([wire])


def test_a_tool_of_unknown_type_is_for_the_provider_to_judge():
    hosted = {"type": "of_tomorrow"}
    assert all(get_dialect(name).render_tools([hosted]) == [hosted] for name in DIALECT_NAMES)


def test_a_custom_tool_changes_form_between_openai_s_dialects():
    grammar = {"syntax": "lark", "definition": "start: WORD"}
    nested = {"name": "f", "format": {"type": "grammar", "grammar": grammar}}
    chat = {"type": "custom", "custom": nested}
    flat = {"type": "custom", "name": "f", "format": {"type": "grammar", **grammar}}
    assert get_dialect("openai_responses").render_tools([chat]) == [flat]
    assert get_dialect("openai_chat").render_tools([flat]) == [chat]
    (tool,) = get_dialect("anthropic").render_tools([flat])
    assert tool["input_schema"]["required"] == ["arguments"]


def test_a_tool_that_is_called_as_one_for_recall_is_refused():
    own = {"name": "recall", "input_schema": {"type": "object"}}
    Context("gpt-4o", tools=[own])
    with pytest.raises(ValueError, match=r"two tools are called 'recall' \(recall=True adds"):
        Context("gpt-4o", tools=[own], recall=True)
