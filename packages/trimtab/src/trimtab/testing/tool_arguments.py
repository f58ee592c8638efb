"""Make arguments that a tool's JSON Schema accepts. The same number gives the same arguments."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from trimtab.testing.replies import ScriptedCall

_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that the request offers, with what a call needs."""

    name: str
    """The name of the tool."""
    schema: Mapping[str, Any]
    """The JSON Schema of its arguments."""
    namespace: str | None = None
    """The namespace that the tool is in, if any."""


def list_callable_tools(
    tools: Sequence[Mapping[str, Any]], loaded: Collection[str] = ()
) -> list[OfferedTool]:
    """Return the caller's own functions, in any dialect. Tools that the provider runs, tools that
    take free text, and deferred tools that nothing has loaded are never called."""
    offered: list[OfferedTool] = []
    for tool in tools:
        if tool.get("type") == "namespace":
            inner = list_callable_tools(tool.get("tools") or (), loaded)
            offered += [replace(each, namespace=str(tool.get("name"))) for each in inner]
            continue
        body: Mapping[str, Any] = tool.get("function") or tool
        schema = body.get("input_schema", body.get("parameters"))
        deferred = tool.get("defer_loading") or body.get("defer_loading")
        if "name" not in body or (deferred and body["name"] not in loaded):
            continue
        if schema is not None or tool.get("type") == "function":
            offered.append(OfferedTool(name=body["name"], schema=schema or {}))
    return offered


def build_tool_call(
    tools: Sequence[OfferedTool], seed: int, name: str | None = None
) -> ScriptedCall:
    """Return a call of one of the tools, taken in turn, or of the named tool."""
    candidates = [tool for tool in tools if name is None or tool.name == name]
    if not candidates:
        raise ValueError(f"no tool {name!r} among {', '.join(tool.name for tool in tools)}")
    tool = candidates[seed % len(candidates)]
    arguments = generate_schema_value(tool.schema, seed)
    return ScriptedCall(
        name=tool.name,
        arguments=cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {},
        namespace=tool.namespace,
    )


def generate_schema_value(schema: Mapping[str, Any], seed: int, depth: int = 0) -> Any:
    """Return a value that a simple schema accepts."""
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if choices := schema.get("enum"):
        return choices[seed % len(choices)]
    for key in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(key):
            return generate_schema_value(options[0], seed, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = cast("list[str]", kind)[0]
    match kind:
        case "object":
            return _object(schema, seed, depth)
        case "array":
            items: Mapping[str, Any] = schema.get("items") or {}
            count = max(schema.get("minItems", 0), 0 if depth >= _MAX_DEPTH else 1)
            return [generate_schema_value(items, seed + index, depth + 1) for index in range(count)]
        case "integer" | "number":
            return _number(schema, seed)
        case "boolean":
            return seed % 2 == 0
        case "null":
            return None
        case _:
            return _string(schema, seed)


def _object(schema: Mapping[str, Any], seed: int, depth: int) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required_keys = schema.get("required") or ()
    keys = [key for key in properties if key in required_keys or depth < 1]
    return {key: generate_schema_value(properties[key], seed, depth + 1) for key in keys}


def _number(schema: Mapping[str, Any], seed: int) -> Any:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    if "exclusiveMinimum" in schema:
        least += 1
    most = schema.get("maximum", least + 1_000)
    return least + seed % max(1, int(most - least + 1))


def _string(schema: Mapping[str, Any], seed: int) -> str:
    text = f"value {seed}"
    least = schema.get("minLength", 0)
    text += "." * (least - len(text))
    return text[: schema.get("maxLength", len(text))]


def dump_tool_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Format arguments as a model writes them."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
