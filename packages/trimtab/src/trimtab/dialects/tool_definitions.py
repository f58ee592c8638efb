"""Converts tool definitions of any known dialect to one form, and from it to each dialect.

Also knows the tools that providers run themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.dialects.reading import to_plain_dict
from trimtab.engine.log.erase import RECALL_TOOL_NAMES

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_FREE_TEXT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"arguments": {"type": "string"}},
    "required": ["arguments"],
}
_ACCEPTED_SHAPES_TEXT = (
    'a tool is {"name": …, "description": …, "input_schema": {…}} or '
    '{"type": "function", "function": {"name": …, "parameters": …}}; '
    "instead of input_schema, you can write parameters or inputSchema"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool that the caller runs, in a form that belongs to no provider."""

    name: str
    """The name that the model uses."""
    dialect: str
    """The dialect it was written in; empty for a form of no dialect."""
    description: str | None = None
    """The description for the model."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the arguments; None if the definition has none."""
    strict: bool | None = None
    """Whether the provider enforces the schema; None if the definition does not say."""
    custom: Mapping[str, Any] | None = None
    """The input format of a tool that takes free text; None for a function."""


def parse_tool_definition(definition: Mapping[str, Any]) -> ToolDefinition | None:
    """Parse a function or custom tool of any known form; return None for a provider's own tool."""
    kind = definition.get("type")
    chat = "openai_chat" if kind is not None else ""
    if (function := dict_or_none(definition.get("function"))) is not None:
        return _build_function_tool(function, chat, "parameters")
    if (custom := dict_or_none(definition.get("custom"))) is not None:
        return _build_custom_tool(custom, chat)
    if definition.get("input_schema") is not None:
        return _build_function_tool(definition, "anthropic", "input_schema")
    if kind == "function":
        return _build_function_tool(definition, "openai_responses", "parameters")
    if kind == "custom":
        return _build_custom_tool(definition, "openai_responses")
    if kind is not None:
        return None
    schema = "inputSchema" if "inputSchema" in definition else "parameters"
    if schema not in definition and _require_name(definition):
        raise ValueError(f"has no schema; {_ACCEPTED_SHAPES_TEXT}")
    return _build_function_tool(definition, "", schema)


def convert_tool_definitions(
    definitions: Sequence[Mapping[str, Any]],
    dialect: str,
    serialize: Callable[[ToolDefinition], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Convert definitions of any known form to a dialect's; raise if a model could not use them."""
    out: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, definition in enumerate(definitions):
        try:
            wire, tool = _parse_usable_definition(definition, dialect)
        except ValueError as error:
            raise ValueError(f"tools[{number}] {error}") from None
        name = wire.get("name") if tool is None else tool.name
        if name in names:
            ours = " (recall=True adds one)" if name in RECALL_TOOL_NAMES else ""
            raise ValueError(f"two tools are called {name!r}{ours}; tool names must be unique")
        if name is not None:
            names.add(name)
        out.append(wire if tool is None or tool.dialect == dialect else serialize(tool))
    return out


def _parse_usable_definition(
    definition: Any, dialect: str
) -> tuple[dict[str, Any], ToolDefinition | None]:
    try:
        wire = to_plain_dict(definition)
    except TypeError:
        raise ValueError(f"is {type(definition).__name__}; {_ACCEPTED_SHAPES_TEXT}") from None
    tool = parse_tool_definition(wire)
    if tool is None and (dialects := find_hosted_tool_dialects(wire)) and dialect not in dialects:
        raise ValueError(
            f"of type {wire['type']!r} is a provider's own tool: {dialects[0]} has it, "
            f"{dialect} does not; remove it, or define your own tool"
        )
    return wire, tool


def read_tool_name(definition: Mapping[str, Any]) -> str:
    """Return a tool's name; for a provider's own tool without a name, its type."""
    tool = parse_tool_definition(definition)
    return tool.name if tool is not None else str(definition.get("name") or definition.get("type"))


def to_anthropic_tool(tool: ToolDefinition) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    out["input_schema"] = _parameters_schema(tool)
    if tool.strict and tool.custom is None:
        out["strict"] = True
    return out


def to_openai_chat_tool(tool: ToolDefinition) -> dict[str, Any]:
    body: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.custom is not None:
        if (kind := tool.custom.get("format")) is not None:
            body["format"] = _chat_format(kind)
        return {"type": "custom", "custom": body}
    body["parameters"] = _parameters_schema(tool)
    if tool.strict is not None:
        body["strict"] = tool.strict
    return {"type": "function", "function": body}


def to_openai_responses_tool(tool: ToolDefinition) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "function" if tool.custom is None else "custom"}
    out["name"] = tool.name
    if tool.description is not None:
        out["description"] = tool.description
    if tool.custom is not None:
        if (kind := tool.custom.get("format")) is not None:
            out["format"] = _responses_format(kind)
        return out
    out["parameters"] = _parameters_schema(tool)
    # Here silence would mean strict, in the other dialects it does not.
    out["strict"] = bool(tool.strict)
    return out


def _require_name(wire: Mapping[str, Any]) -> str:
    name = wire.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"has no name; {_ACCEPTED_SHAPES_TEXT}")
    return name


def _build_function_tool(wire: Mapping[str, Any], dialect: str, schema_key: str) -> ToolDefinition:
    schema = dict_or_none(wire.get(schema_key))
    if schema is None and wire.get(schema_key) is not None:
        raise ValueError(
            f"has {type(wire[schema_key]).__name__} for its {schema_key}; {_ACCEPTED_SHAPES_TEXT}"
        )
    return ToolDefinition(
        name=_require_name(wire),
        dialect=dialect,
        description=wire.get("description"),
        schema=schema,
        strict=wire.get("strict"),
    )


def _build_custom_tool(wire: Mapping[str, Any], dialect: str) -> ToolDefinition:
    custom = {"format": wire["format"]} if wire.get("format") is not None else {}
    return ToolDefinition(
        name=_require_name(wire),
        dialect=dialect,
        description=wire.get("description"),
        custom=custom,
    )


def _parameters_schema(tool: ToolDefinition) -> dict[str, Any]:
    if tool.custom is not None:
        return dict(_FREE_TEXT)
    return dict(_NO_PARAMETERS if tool.schema is None else tool.schema)


def _chat_format(kind: Any) -> Any:
    """Convert the format. Chat nests a grammar's definition one level deeper than Responses."""
    format_object = dict_or_none(kind)
    if (
        format_object is None
        or format_object.get("type") != "grammar"
        or "grammar" in format_object
    ):
        return kind
    return {
        "type": "grammar",
        "grammar": {key: value for key, value in format_object.items() if key != "type"},
    }


def _responses_format(kind: Any) -> Any:
    format_object = dict_or_none(kind)
    grammar = dict_or_none(format_object.get("grammar")) if format_object is not None else None
    return kind if grammar is None else {"type": "grammar", **grammar}


_ANTHROPIC_HOSTED_TYPE = re.compile(r".+_\d{8}|mcp_toolset")
_RESPONSES_HOSTED_TYPE = re.compile(
    r"web_search(_preview)?(_\d{4}_\d\d_\d\d)?|file_search|computer(_use_preview)?|mcp|"
    r"image_generation|(local_)?shell|apply_patch|tool_search|namespace|programmatic_tool_calling"
)
_SHARED_OPENAI_HOSTED_TYPE = "code_interpreter"
"""Servers that speak Chat Completions also have a tool with this name."""


def find_hosted_tool_dialects(tool_definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dialects that have a provider's own tool; empty if that is unknown."""
    kind = str(tool_definition.get("type"))
    if kind == _SHARED_OPENAI_HOSTED_TYPE:
        return ("openai_responses", "openai_chat")
    # A body under its own type is how some servers write theirs in Chat Completions.
    if _RESPONSES_HOSTED_TYPE.fullmatch(kind) and kind not in tool_definition:
        return ("openai_responses",)
    return ("anthropic",) if _ANTHROPIC_HOSTED_TYPE.fullmatch(kind) else ()
