"""Deferred tools: definitions that a provider keeps out of the prompt until something loads them.

`defer_loading` defers a definition. Anthropic, and servers that follow it, then show nothing of it.
The Responses API shows the name and the description of a deferred function. Of deferred tools in a
namespace it shows nothing.

A tool is loaded by the result of a tool search, by a `tool_reference` in a tool's result, or by a
`tool_addition` in a system message. Some of these contain the definition, others only its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from trimtab.engine.log.message import Message, OpaqueBlock, Part, ToolResult

_Json = Mapping[str, Any]

_SHOWN_KEYS_OF_DEFERRED_FUNCTION = ("type", "name", "description")
_FUNCTION_TYPES = ("function", "custom")
_NOT_IN_RESPONSES_FORM = ("input_schema", "function", "custom")
"""Keys of definitions in the form of another dialect."""


def get_definition_in_prompt(tool: _Json) -> _Json | None:
    """Return what the model sees of a tool that nothing has loaded; None if it sees nothing."""
    if inner := _list_objects(tool.get("tools")):
        inner_in_prompt = [each for each in inner if not _is_deferred_within(tool, each)]
        return {**tool, "tools": inner_in_prompt} if len(inner_in_prompt) < len(inner) else tool
    kind = tool.get("type")
    if not _is_deferred(tool) or kind == "mcp":
        return tool
    if kind in _FUNCTION_TYPES and not any(key in tool for key in _NOT_IN_RESPONSES_FORM):
        return {key: tool[key] for key in _SHOWN_KEYS_OF_DEFERRED_FUNCTION if key in tool}
    return None


def find_deferred_definitions(tools: Iterable[_Json]) -> dict[str, _Json]:
    """Return the deferred definitions by the name of their tool."""
    definitions: dict[str, _Json] = {}
    for tool in tools:
        inner = _list_objects(tool.get("tools"))
        definitions_here = [each for each in inner if _is_deferred_within(tool, each)]
        if not inner and _is_deferred(tool):
            definitions_here = [tool]
        for each in definitions_here:
            function: _Json = each.get("function") or each
            definitions[str(function.get("name"))] = each
    return definitions


def list_tools_in_prompt(tool: _Json) -> list[tuple[str, _Json]]:
    """Return the name and the definition of each tool in the prompt that the caller runs.

    That is the tool itself, or several tools of a namespace. A provider's own tool gives none.
    """
    definition = get_definition_in_prompt(tool)
    tools: list[tuple[str, _Json]] = []
    for each in (
        [] if definition is None else _list_objects(definition.get("tools")) or [definition]
    ):
        body: _Json = each.get("function") or each.get("custom") or each
        if body is not each or "input_schema" in each or each.get("type") in _FUNCTION_TYPES:
            tools.append((str(body.get("name")), each))
    return tools


def list_loaded_tools(message: Message) -> set[str]:
    """Return the names of the tools that a message loads."""
    return {name for part in message.parts for name, _ in _iterate_loads(part)}


def list_tools_loaded_by_name(part: Part) -> list[str]:
    """Return the names of the tools that a part loads without containing their definitions."""
    return [name for name, contains_definition in _iterate_loads(part) if not contains_definition]


def loads_tools(part: Part) -> bool:
    """Whether a part loads tools. Such a part is never edited."""
    return next(_iterate_loads(part), None) is not None


def _iterate_loads(part: Part) -> Iterator[tuple[str, bool]]:
    """Yield the tools that a part loads, and whether it contains their definitions."""
    if type(part) is OpaqueBlock:
        yield from _iterate_loads_of_block(part.data)
    elif type(part) is ToolResult:
        if part.extra is not None:
            yield from _iterate_loads_of_block(part.extra)
        for inner in part.content:
            if type(inner) is OpaqueBlock:
                yield from _iterate_loads_of_block(inner.data)


def _iterate_loads_of_block(block: _Json) -> Iterator[tuple[str, bool]]:
    match block.get("type"):
        case "tool_reference":
            yield str(block.get("tool_name") or block.get("name")), False
        case "tool_search_tool_result":
            result: Any = block.get("content")
            if isinstance(result, Mapping):
                for each in _list_objects(cast("_Json", result).get("tool_references")):
                    yield from _iterate_loads_of_block(each)
        case "tool_search_output":
            for tool in _list_objects(block.get("tools")):
                for each in _list_objects(tool.get("tools")) or [tool]:
                    yield str(each.get("name")), True
        case "tool_addition":
            change: Any = block.get("tool")
            if isinstance(change, Mapping):
                addition = cast("_Json", change)
                definition: _Json = addition.get("definition") or {}
                yield str(definition.get("name") or addition.get("name")), bool(definition)
        case _:
            pass


def _is_deferred(tool: _Json) -> bool:
    body: _Json = tool.get("function") or {}
    return tool.get("defer_loading") is True or body.get("defer_loading") is True


def _is_deferred_within(group: _Json, tool: _Json) -> bool:
    """Whether a tool of a namespace or of an MCP toolset is deferred."""
    configs: _Json = group.get("configs") or {}
    config: _Json = configs.get(str(tool.get("name"))) or {}
    usual: _Json = group.get("default_config") or {}
    return _is_deferred(tool) or config.get("defer_loading", usual.get("defer_loading")) is True


def _list_objects(value: Any) -> Sequence[_Json]:
    if not isinstance(value, list | tuple):
        return []
    return [
        cast("_Json", each) for each in cast("Sequence[Any]", value) if isinstance(each, Mapping)
    ]
