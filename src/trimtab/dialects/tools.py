"""Tool definitions of any known dialect in one form, and from it in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.core.search import RECALL_TOOLS
from trimtab.dialects.hosted import owners
from trimtab.dialects.plain import to_wire
from trimtab.dialects.shapes import as_dict

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_FREE_TEXT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"arguments": {"type": "string"}},
    "required": ["arguments"],
}
_SHAPES = (
    'a tool is {"name": …, "description": …, "input_schema": {…}}, the same with parameters or '
    'inputSchema for its schema, or {"type": "function", "function": {"name": …, "parameters": …}}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the caller runs, in no provider's form."""

    name: str
    """As the model calls it."""
    form: str
    """The dialect it was written in; empty for a form that is none's."""
    description: str | None = None
    """What the model is told of it."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the arguments; None where the definition has none."""
    strict: bool | None = None
    """Whether the provider holds the model to the schema; None where the definition is silent."""
    custom: Mapping[str, Any] | None = None
    """The input format of a tool that takes free text; None for a function."""


def read_tool(wire: Mapping[str, Any]) -> Tool | None:
    """A function or custom tool of any known form; None for what a provider runs itself."""
    kind = wire.get("type")
    chat = "openai_chat" if kind is not None else ""
    if (function := as_dict(wire.get("function"))) is not None:
        return _tool(function, chat, "parameters")
    if (custom := as_dict(wire.get("custom"))) is not None:
        return _custom(custom, chat)
    if wire.get("input_schema") is not None:
        return _tool(wire, "anthropic", "input_schema")
    if kind == "function":
        return _tool(wire, "openai_responses", "parameters")
    if kind == "custom":
        return _custom(wire, "openai_responses")
    if kind is not None:
        return None
    schema = "inputSchema" if "inputSchema" in wire else "parameters"
    if schema not in wire and _name(wire):
        raise ValueError(f"has no schema; {_SHAPES}")
    return _tool(wire, "", schema)


def write_tools(
    tools: Sequence[Mapping[str, Any]], form: str, write: Callable[[Tool], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Definitions of any known form in a dialect's; refused where a model could not use them."""
    out: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, given in enumerate(tools):
        try:
            wire, tool = _readable(given, form)
        except ValueError as error:
            raise ValueError(f"tools[{number}] {error}") from None
        name = wire.get("name") if tool is None else tool.name
        if name in names:
            ours = ", and recall=True brings one" if name in RECALL_TOOLS else ""
            raise ValueError(f"two tools are called {name!r}{ours}; give each a name of its own")
        if name is not None:
            names.add(name)
        out.append(wire if tool is None or tool.form == form else write(tool))
    return out


def _readable(given: Any, form: str) -> tuple[dict[str, Any], Tool | None]:
    try:
        wire = to_wire(given)
    except TypeError:
        raise ValueError(f"is {type(given).__name__}; {_SHAPES}") from None
    tool = read_tool(wire)
    if tool is None and (own := owners(wire)) and form not in own:
        raise ValueError(
            f"of type {wire['type']!r} is one that a provider runs itself: {own[0]} has it, "
            f"{form} does not; leave it out, or define a tool of your own"
        )
    return wire, tool


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


def _name(wire: Mapping[str, Any]) -> str:
    name = wire.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"has no name; {_SHAPES}")
    return name


def _tool(wire: Mapping[str, Any], form: str, key: str) -> Tool:
    schema = as_dict(wire.get(key))
    if schema is None and wire.get(key) is not None:
        raise ValueError(f"has {type(wire[key]).__name__} for its {key}; {_SHAPES}")
    return Tool(
        name=_name(wire),
        form=form,
        description=wire.get("description"),
        schema=schema,
        strict=wire.get("strict"),
    )


def _custom(wire: Mapping[str, Any], form: str) -> Tool:
    custom = {"format": wire["format"]} if wire.get("format") is not None else {}
    return Tool(name=_name(wire), form=form, description=wire.get("description"), custom=custom)


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
