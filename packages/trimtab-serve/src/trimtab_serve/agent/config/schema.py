"""The JSON Schema of an agent's file, and questions about it by path.

`python -m trimtab_serve.agent.config.schema` prints the schema for editors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.config.yaml_document import ConfigPath

SchemaNode = Mapping[str, Any]
"""A JSON Schema, or a part of one."""

ANY_NAME = "NAME"
"""Placeholder in a path for a name that the user chooses."""


@cache
def build_spec_schema() -> SchemaNode:
    """Build the schema of what is read, without what only editors need."""
    return AgentSpec.model_json_schema()


def find_schema_at(path: ConfigPath, data: Any) -> SchemaNode | None:
    """Return the schema of the value at this path of a document. None if the path is not
    allowed."""
    shape = resolve_schema(build_spec_schema(), data)
    for name in path:
        data = _child_value(data, name)
        if (inner := find_child_schema(shape, name)) is None:
            return None
        shape = resolve_schema(inner, data)
    return shape


def resolve_schema(schema: SchemaNode, value: Any) -> SchemaNode:
    """Return the schema that a value should have: follow references, choose the matching
    alternative."""
    while True:
        if "$ref" in schema:
            name = str(schema["$ref"]).rsplit("/", 1)[1]
            schema = {
                **build_spec_schema()["$defs"][name],
                **{k: v for k, v in schema.items() if k != "$ref"},
            }
        elif "discriminator" in schema:
            kind = _child_value(value, "kind")
            if not isinstance(kind, str) or kind not in map_tool_kinds_to_refs(schema):
                return schema
            schema = {"$ref": map_tool_kinds_to_refs(schema)[kind]}
        elif "anyOf" in schema:
            fitting = _fitting_alternatives(schema, value)
            if len(fitting) != 1:
                return schema
            annotations = {k: v for k, v in schema.items() if k in ("default", "description")}
            schema = {**fitting[0], **annotations}
        else:
            return schema


def map_tool_kinds_to_refs(tool_schema: SchemaNode) -> dict[str, str]:
    """Return the alternatives of a tool by the value of `kind`."""
    return dict(tool_schema.get("discriminator", {}).get("mapping", {}))


def list_settings_of_block(block_schema: SchemaNode) -> list[str]:
    """Return the names of a block's settings."""
    return list(block_schema.get("properties", {}))


@cache
def index_blocks_by_setting() -> Mapping[str, tuple[str, ...]]:
    """Return the paths of the blocks that have a setting, by the setting's name. The path of the
    file itself is empty."""
    blocks: dict[str, list[str]] = {}
    for block, shape in iterate_config_blocks():
        for name in list_settings_of_block(shape):
            if block not in (at := blocks.setdefault(name, [])):
                at.append(block)
    return {name: tuple(at) for name, at in blocks.items()}


def iterate_config_blocks() -> Iterator[tuple[str, SchemaNode]]:
    """Yield every block of the file with its path. The four kinds of a tool share one path."""
    return _iterate_blocks_below("", build_spec_schema())


def find_tool_kinds_with(setting: str) -> list[str]:
    """Return the kinds of tools that have a setting."""
    return [
        str(shape["properties"]["kind"]["const"])
        for _, shape in iterate_config_blocks()
        if setting in list_settings_of_block(shape)
        and "const" in shape["properties"].get("kind", {})
    ]


def _iterate_blocks_below(path: str, shape: SchemaNode) -> Iterator[tuple[str, SchemaNode]]:
    shape = resolve_schema(shape, {})
    for ref in map_tool_kinds_to_refs(shape).values():
        yield from _iterate_blocks_below(path, {"$ref": ref})
    if "properties" in shape:
        yield path, shape
    for name, inner in shape.get("properties", {}).items():
        yield from _iterate_blocks_below(f"{path}.{name}".lstrip("."), inner)
    if more := _schema_of_other_names(shape):
        yield from _iterate_blocks_below(f"{path}.{ANY_NAME}", more)


def describe_expected_value(schema: SchemaNode) -> str:
    """Describe what a value must be: `a whole number, 1 or more`."""
    if "enum" in schema:
        return f"one of {', '.join(str(choice) for choice in schema['enum'])}"
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(
            describe_expected_value(resolve_schema(one, None))
            for one in _fitting_alternatives(schema, None)
        )
    match schema.get("type"):
        case "integer":
            return f"a whole number{_describe_range(schema, whole=True)}"
        case "number":
            return f"a number{_describe_range(schema, whole=False)}"
        case "boolean":
            return "true or false"
        case "string":
            return "a text"
        case "array":
            least = "one or more " if schema.get("minItems") else ""
            return f"a list of {least}{_describe_many_values(schema['items'])}"
        case _ if is_settings_block(schema):
            return "a block of settings"
        case _:
            more = _schema_of_other_names(schema)
            return f"names with {_describe_many_values(more) if more else 'values'}"


def _describe_many_values(shape: SchemaNode) -> str:
    shape = resolve_schema(shape, None)
    if is_settings_block(shape):
        return "a block of settings each"
    return {"string": "texts", "object": "a JSON Schema each"}.get(shape.get("type", ""), "values")


def _describe_range(shape: SchemaNode, *, whole: bool) -> str:
    low = shape.get("minimum")
    if "exclusiveMinimum" in shape:
        low = shape["exclusiveMinimum"] + 1 if whole else None
    if low is not None and "maximum" in shape:
        return f", {low} to {shape['maximum']:,}"
    if low is not None:
        return f", {low} or more"
    if "exclusiveMinimum" not in shape:
        return ""
    most = f" and at most {shape['maximum']}" if "maximum" in shape else ""
    return f" more than {shape['exclusiveMinimum']}{most}"


def _fitting_alternatives(shape: SchemaNode, data: Any) -> list[SchemaNode]:
    choices = [one for one in cast("list[SchemaNode]", shape["anyOf"]) if one.get("type") != "null"]
    kinds = {list: "array", dict: "object"}
    json_type = kinds.get(cast("type[Any]", type(data)))
    # Every reference is to a block.
    same = [one for one in choices if one.get("type", "object") == json_type]
    return same or choices


def find_child_schema(schema: SchemaNode, name: str | int) -> SchemaNode | None:
    """Return the schema under a name or in a list. None if nothing is allowed there."""
    if isinstance(name, int):
        return schema.get("items")
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    return _schema_of_other_names(schema)


def is_settings_block(schema: SchemaNode) -> bool:
    """Return whether a schema is a block of settings."""
    schema = resolve_schema(schema, None)
    return "properties" in schema or "discriminator" in schema


def _schema_of_other_names(shape: SchemaNode) -> SchemaNode | None:
    """Return the schema under a name that the user chooses. None if no name can be chosen."""
    if "patternProperties" in shape:
        return next(iter(shape["patternProperties"].values()))
    more = shape.get("additionalProperties")
    return {} if more is True else more or None


def find_value_at(data: Any, path: ConfigPath) -> Any:
    """Return the value at a path. None if there is no value."""
    for step in path:
        data = _child_value(data, step)
    return data


def _child_value(data: Any, step: str | int) -> Any:
    if isinstance(data, dict) and isinstance(step, str):
        return cast("dict[str, Any]", data).get(step)
    if isinstance(data, list) and isinstance(step, int):
        json_list = cast("list[Any]", data)
        return json_list[step] if step < len(json_list) else None
    return None


JSON_SCHEMA_DRAFT_URL = "https://json-schema.org/draft/2020-12/schema"
ENV_REFERENCE_SCHEMA: Mapping[str, Any] = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
}
"""A text that refers to the environment. It may replace a number, a choice, or true or false."""

_MCP_COMMAND_OR_URL = [
    {"required": ["command"], "properties": {"command": {"type": "array"}}},
    {"required": ["url"], "properties": {"url": {"type": "string"}}},
]
"""An MCP server has either a command or an address."""


def build_editor_schema() -> dict[str, Any]:
    """Return the schema of files that `load_agent_spec` accepts.

    It does not cover everything that reading checks: whether a variable is set, whether the file of
    the prompt exists, and whether two numbers go together.
    """
    schema = _editor_block(build_spec_schema())
    schema["$defs"] = {
        name: _editor_block(shape) for name, shape in build_spec_schema()["$defs"].items()
    }
    schema["$defs"]["McpToolSpec"]["oneOf"] = _MCP_COMMAND_OR_URL
    head = {
        "$schema": JSON_SCHEMA_DRAFT_URL,
        "$id": "urn:trimtab:agent",
        "title": "A Trimtab agent",
    }
    return {**head, **schema}


def format_editor_schema() -> str:
    """Return the schema as it is published."""
    return json.dumps(build_editor_schema(), indent=2, ensure_ascii=False) + "\n"


def _editor_block(shape: Mapping[str, Any]) -> dict[str, Any]:
    required_names: list[str] = shape.get("required", [])
    properties = {
        name: _editor_setting(inner, required=name in required_names)
        for name, inner in shape.get("properties", {}).items()
    }
    block_keys = {name: value for name, value in shape.items() if name not in ("title", "$defs")}
    if "description" in block_keys:
        block_keys["description"] = _on_one_line(block_keys["description"])
    return {**block_keys, "properties": properties}


def _editor_setting(shape: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """Return the schema of one setting. A setting without a value in the file is not set."""
    annotations = (
        {"description": _on_one_line(shape["description"])} if "description" in shape else {}
    )
    if shape.get("default") is not None and "$ref" not in shape:
        annotations["default"] = shape["default"]
    bare = {
        name: value
        for name, value in shape.items()
        if name not in ("default", "description", "discriminator", "title")
    }
    if "patternProperties" in bare:
        bare["additionalProperties"] = False
    more: Any = bare.get("additionalProperties")
    if isinstance(more, dict) and "$ref" in more:
        bare["additionalProperties"] = {"anyOf": [more, {"type": "null"}]}
    choices = cast("list[dict[str, Any]]", bare.pop("anyOf", None) or [bare])
    if any(_may_be_env_reference(choice) for choice in choices):
        choices = [*choices, dict(ENV_REFERENCE_SCHEMA)]
    if not required and {"type": "null"} not in choices:
        choices = [*choices, {"type": "null"}]
    return {**annotations, **(choices[0] if len(choices) == 1 else {"anyOf": choices})}


def _may_be_env_reference(shape: Mapping[str, Any]) -> bool:
    return shape.get("type") in ("integer", "number", "boolean") or "enum" in shape


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(format_editor_schema())
