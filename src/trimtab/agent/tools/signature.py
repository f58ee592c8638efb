"""What a Python function takes: as a JSON Schema for the model, and checked when it is called."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from trimtab.agent.tools.loading import Function
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.session.tools import Failed, Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a function takes."""

    adapters: Mapping[str, TypeAdapter[Any]]
    """By the parameter's name, what reads its value."""
    required: tuple[str, ...]
    """Parameters without a default."""
    invocation: str | None
    """The parameter that gets the invocation itself."""
    schema: Mapping[str, Any]
    """JSON Schema of the arguments."""


def read_signature(name: str, function: Function) -> Signature:
    """What the function takes, and the schema that says so."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ToolUnusable(name, f"the function's signature cannot be read: {error}") from error
    adapters: dict[str, TypeAdapter[Any]] = {}
    invocation = None
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolUnusable(
                name, f"{parameter} stands for any number of values; name each parameter"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolUnusable(name, f"{parameter.name} takes no name; remove the `/` behind it")
        hint = hints.get(parameter.name, Any)
        if hint is Invocation:
            invocation = parameter.name
            continue
        try:
            adapters[parameter.name] = TypeAdapter(hint)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            said = str(error).splitlines()[0]
            raise ToolUnusable(
                name, f"the type of {parameter.name} has no JSON form ({said}); use another"
            ) from error
    required = tuple(n for n in adapters if parameters[n].default is inspect.Parameter.empty)
    defaults = {n: parameters[n].default for n in adapters if n not in required}
    schema = _schema(name, adapters, required, defaults)
    return Signature(adapters=adapters, required=required, invocation=invocation, schema=schema)


def _schema(
    name: str,
    adapters: Mapping[str, TypeAdapter[Any]],
    required: Sequence[str],
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    try:
        made, shared = TypeAdapter.json_schemas(
            [(each, "validation", adapter) for each, adapter in adapters.items()]
        )
    except PydanticUserError as error:
        said = str(error).splitlines()[0]
        raise ToolUnusable(name, f"a parameter's type has no JSON Schema: {said}") from error
    properties = {each: dict(schema) for (each, _), schema in made.items()}
    for each, value in defaults.items():
        try:
            properties[each]["default"] = adapters[each].dump_python(value, mode="json")
        except (PydanticSerializationError, ValueError, UserWarning):
            continue
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    if definitions := shared.get("$defs"):
        out["$defs"] = definitions
    return out


def read_arguments(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the function wants them; raises Failed with all that is wrong."""
    wrong: list[str] = []
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        adapter = signature.adapters.get(name)
        if adapter is None:
            known = ", ".join(signature.adapters) or "none"
            wrong.append(f"no parameter is called {name}; there is {known}")
            continue
        try:
            values[name] = adapter.validate_python(value)
        except ValidationError as error:
            for each in error.errors(include_url=False, include_context=False):
                place = ".".join(map(str, (name, *each["loc"])))
                wrong.append(f"{place}: {each['msg']}")
    wrong += [f"{name}: missing" for name in signature.required if name not in arguments]
    if wrong:
        raise Failed("the arguments do not fit:\n" + "\n".join(f"- {each}" for each in wrong))
    return values
