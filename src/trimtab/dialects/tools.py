"""Tool definitions of any known dialect in one form, and from it in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.dialects.shapes import as_dict

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_FREE_TEXT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"arguments": {"type": "string"}},
    "required": ["arguments"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the caller runs, in no provider's form."""

    name: str
    """As the model calls it."""
    form: str
    """The dialect it was written in."""
    description: str | None = None
    """What the model is told of it."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the arguments; None where the definition has none."""
    strict: bool | None = None
    """Whether the provider holds the model to the schema; None where the definition is silent."""
    custom: Mapping[str, Any] | None = None
    """The input format of a tool that takes free text; None for a function."""


def read_tool(wire: Mapping[str, Any]) -> Tool | None:
    """A function or custom tool of any known dialect; None for what a provider runs itself."""
    function = as_dict(wire.get("function"))
    if function is not None:
        return _tool(function, "openai_chat", "parameters")
    custom = as_dict(wire.get("custom"))
    if custom is not None:
        return _custom(custom, "openai_chat")
    if "input_schema" in wire:
        return _tool(wire, "anthropic", "input_schema")
    if wire.get("type") == "function":
        return _tool(wire, "openai_responses", "parameters")
    if wire.get("type") == "custom" and "name" in wire:
        return _custom(wire, "openai_responses")
    return None


def name_of(wire: Mapping[str, Any]) -> str:
    """A tool's name; for one that a provider runs itself and that has none, its type."""
    tool = read_tool(wire)
    return tool.name if tool is not None else str(wire.get("name") or wire.get("type"))


def to_anthropic(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    out["input_schema"] = _schema(tool)
    if tool.strict and tool.custom is None:
        out["strict"] = True
    return out


def to_openai_chat(tool: Tool) -> dict[str, Any]:
    body: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.custom is not None:
        if (kind := tool.custom.get("format")) is not None:
            body["format"] = _chat_format(kind)
        return {"type": "custom", "custom": body}
    body["parameters"] = _schema(tool)
    if tool.strict is not None:
        body["strict"] = tool.strict
    return {"type": "function", "function": body}


def to_openai_responses(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "function" if tool.custom is None else "custom"}
    out["name"] = tool.name
    if tool.description is not None:
        out["description"] = tool.description
    if tool.custom is not None:
        if (kind := tool.custom.get("format")) is not None:
            out["format"] = _responses_format(kind)
        return out
    out["parameters"] = _schema(tool)
    # Here silence would mean strict, in the other dialects it does not.
    out["strict"] = bool(tool.strict)
    return out


def _tool(wire: Mapping[str, Any], form: str, schema: str) -> Tool:
    return Tool(
        name=wire["name"],
        form=form,
        description=wire.get("description"),
        schema=as_dict(wire.get(schema)),
        strict=wire.get("strict"),
    )


def _custom(wire: Mapping[str, Any], form: str) -> Tool:
    custom = {"format": wire["format"]} if wire.get("format") is not None else {}
    return Tool(name=wire["name"], form=form, description=wire.get("description"), custom=custom)


def _schema(tool: Tool) -> dict[str, Any]:
    if tool.custom is not None:
        return dict(_FREE_TEXT)
    return dict(_NO_PARAMETERS if tool.schema is None else tool.schema)


def _chat_format(kind: Any) -> Any:
    """Chat nests a grammar's definition one level deeper than Responses does."""
    found = as_dict(kind)
    if found is None or found.get("type") != "grammar" or "grammar" in found:
        return kind
    return {
        "type": "grammar",
        "grammar": {key: value for key, value in found.items() if key != "type"},
    }


def _responses_format(kind: Any) -> Any:
    found = as_dict(kind)
    grammar = as_dict(found.get("grammar")) if found is not None else None
    return kind if grammar is None else {"type": "grammar", **grammar}
