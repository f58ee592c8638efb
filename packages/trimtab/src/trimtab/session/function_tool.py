"""A typed Python function as a tool: the signature is the schema, the docstring the description."""

from __future__ import annotations

import asyncio
import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union, cast, overload

from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.session.tools import OnInterrupt, Tool, ToolError, ToolInvocation

_JSON_TYPES: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    on_interrupt: OnInterrupt = "report",
    timeout: float | None = 300.0,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_interrupt: OnInterrupt = "report",
    timeout: float | None = 300.0,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function, synchronous or not. Use it as a decorator.

    Each parameter needs a type: str, int, float, bool, list, dict, Literal, an Enum, a TypedDict,
    or a union of these. A parameter of type `ToolInvocation` gets the call itself, and the model
    does not see it. The function returns text, or anything that JSON can express. It raises
    `ToolError` to tell the model what went wrong.

    Args:
        function: The function.
        name: The tool's name. By default the function's name.
        description: What the model reads about the tool. By default the function's docstring.
        on_interrupt: What to do after a crash in the middle of a call: `report` that the outcome is
            unknown, `rerun` the tool, or `ask` the user.
        timeout: Seconds after which the call fails; None for no limit.

    Returns:
        The tool.

    Raises:
        TypeError: If a parameter has no type, or one that is not supported.

    Example:
        A tool with two parameters::

            @tool
            def weather(city: str, days: int = 1) -> str:
                "The weather in a city."
                return look_up(city, days)
    """

    def make(made_of: Callable[..., Any]) -> Tool:
        tool_name = name or made_of.__name__
        schema, call_parameter = _build_parameter_schema(made_of, tool_name)
        if tool_name == "<lambda>":
            raise TypeError("a lambda has no name; use a typed function, or tool(name=…)(function)")
        enums = {
            parameter: hint
            for parameter, hint in typing.get_type_hints(made_of).items()
            if isinstance(hint, type) and issubclass(hint, enum.Enum)
        }
        about = description if description is not None else inspect.getdoc(made_of) or ""

        async def run(invocation: ToolInvocation) -> Any:
            arguments = dict(invocation.arguments)
            _check_arguments(tool_name, schema, arguments)
            for parameter in arguments.keys() & enums.keys():
                arguments[parameter] = enums[parameter](arguments[parameter])
            if call_parameter is not None:
                arguments[call_parameter] = invocation
            if inspect.iscoroutinefunction(made_of):
                result = await made_of(**arguments)
            else:
                result = await asyncio.to_thread(_call_in_thread, made_of, arguments)
            return _format_result(result)

        definition = {"name": tool_name, "description": about, "input_schema": schema}
        return Tool(definition=definition, run=run, on_interrupt=on_interrupt, timeout=timeout)

    return make if function is None else make(function)


def to_tool(value: Tool | Callable[..., Any]) -> Tool:
    """Return the tool, or make one of a typed function."""
    if isinstance(value, Tool):
        return value
    if not callable(value):
        raise TypeError(
            describe_wrong_value("a tool", value, "a typed function, or Tool(definition=…, run=…)")
        )
    return tool(value)


def _build_parameter_schema(
    function: Callable[..., Any], tool_name: str
) -> tuple[dict[str, Any], str | None]:
    """Return the JSON Schema of the parameters, and the name of the one that gets the call
    itself."""
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required_names: list[str] = []
    call_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"{tool_name}: *args and **kwargs are not supported; declare every parameter by "
                "name"
            )
        if parameter.name not in hints:
            raise TypeError(f"{tool_name}: parameter {parameter.name!r} needs a type, such as str")
        if hints[parameter.name] is ToolInvocation:
            call_parameter = parameter.name
            continue
        schema = _build_type_schema(
            hints[parameter.name], f"{tool_name}: parameter {parameter.name!r}"
        )
        if parameter.default is parameter.empty:
            required_names.append(parameter.name)
        elif isinstance(parameter.default, str | int | float | bool):
            schema = {**schema, "default": parameter.default}
        properties[parameter.name] = schema
    parameter_schema = {
        "type": "object",
        "properties": properties,
        "required": required_names,
        "additionalProperties": False,
    }
    return parameter_schema, call_parameter


def _build_type_schema(hint: Any, where: str) -> dict[str, Any]:
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_build_type_schema(one, where) for one in inner]}
    if hint is list or origin in (list, Sequence, tuple):
        items = _build_type_schema(inner[0], where) if inner else {}
        return {"type": "array", "items": items}
    if typing.is_typeddict(hint):
        fields = typing.get_type_hints(hint, include_extras=True)
        required_keys = [
            key
            for key, one in fields.items()
            if (origin := typing.get_origin(one)) is Required
            or (hint.__total__ and origin is not NotRequired)
        ]
        return {
            "type": "object",
            "properties": {key: _build_type_schema(one, where) for key, one in fields.items()},
            "required": required_keys,
            "additionalProperties": False,
        }
    if origin in (Required, NotRequired):
        return _build_type_schema(inner[0], where)
    if hint is dict or origin in (dict, Mapping):
        values = _build_type_schema(inner[1], where) if len(inner) > 1 else {}
        return {"type": "object", "additionalProperties": values}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    raise TypeError(
        f"{where} has type {hint!r}, which is not supported; use str, int, float, bool, list, "
        "dict, Literal, an Enum or a TypedDict"
    )


def _check_arguments(
    tool_name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Tell the model which arguments are missing, unknown or invalid."""
    properties = cast("Mapping[str, Any]", schema["properties"])
    if missing := [name for name in schema["required"] if name not in arguments]:
        raise ToolError(f"{tool_name} needs {', '.join(missing)}")
    if unknown := [name for name in arguments if name not in properties]:
        raise ToolError(
            f"{tool_name} has no {', '.join(unknown)}; it takes {', '.join(properties)}"
        )
    for name, value in arguments.items():
        if not _fits_schema(value, properties[name]):
            raise ToolError(
                f"{tool_name}: {name} is {value!r}; it must match {json.dumps(properties[name])}"
            )


def _fits_schema(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value has the type that its schema names. Nested values are also checked."""
    if "anyOf" in schema:
        return any(_fits_schema(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    match schema.get("type"):
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            items = schema.get("items", {})
            return isinstance(value, list) and all(
                _fits_schema(one, items) for one in cast("list[Any]", value)
            )
        case "object":
            return isinstance(value, dict) and _fits_object(cast("dict[str, Any]", value), schema)
        case _:
            return True


def _fits_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    properties: Mapping[str, Any] = schema.get("properties", {})
    others = schema["additionalProperties"]
    if any(key not in value for key in schema.get("required", ())):
        return False
    if others is False:
        return all(key in properties and _fits_schema(value[key], properties[key]) for key in value)
    return all(_fits_schema(one, others) for one in value.values())


def _call_in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # a future does not take it: nobody would hear of it
        raise RuntimeError("the function raised StopIteration") from error


def _format_result(result: Any) -> Any:
    """Format a tool's result for the model: text and parts unchanged, everything else as JSON."""
    if isinstance(result, str):
        return result
    if (
        isinstance(result, tuple | list)
        and result
        and all(
            type(one).__module__ == "trimtab.engine.log.message"
            for one in cast("list[Any]", result)
        )
    ):
        return cast("Any", result)
    return json.dumps(result, ensure_ascii=False, default=str)
