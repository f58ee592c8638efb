"""A command with placeholders for values: the model fills them in, and no shell reads it.

The values are checked against the JSON Schema of each parameter, as far as it is simple.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from trimtab.session.tools import Tool, ToolError, ToolInvocation
from trimtab_serve.agent.config.spec import CommandToolSpec
from trimtab_serve.agent.environment import build_tool_environment
from trimtab_serve.agent.tools.permissions.rules import (
    build_permission_rules,
    format_arguments_for_patterns,
)
from trimtab_serve.agent.tools.process import TERMINATION_GRACE_S, run_process
from trimtab_serve.agent.tools.sandbox import choose_sandbox
from trimtab_serve.agent.tools.shell import check_working_folder, resolve_working_folder
from trimtab_serve.agent.tools.tool_setting import ToolSetting, UnusableToolError

CHECKED_SCHEMA_KEYWORDS = frozenset(
    {"type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "items"}
)
"""JSON Schema keywords that are checked."""
DESCRIPTIVE_SCHEMA_KEYWORDS = frozenset({"default", "description", "examples", "format", "title"})
"""JSON Schema keywords that only the model reads."""

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def explain_invalid_value(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a value, in words for the model. None if it is valid."""
    kind = schema.get("type", "string")
    if not isinstance(value, _PYTHON_TYPES.get(kind, (str,))) or (
        isinstance(value, bool) and kind != "boolean"
    ):
        return f"must be of type {kind}, not {_shortened_repr(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}, not {_shortened_repr(value)}"
    if isinstance(value, list):
        items = cast("Mapping[str, Any]", schema.get("items", {}))
        faults = (explain_invalid_value(each, items) for each in cast("list[Any]", value))
        return next((f"has an item that {wrong}" for wrong in faults if wrong), None)
    return (
        _explain_invalid_text(value, schema)
        if isinstance(value, str)
        else _explain_invalid_number(value, schema)
    )


def _explain_invalid_text(value: str, schema: Mapping[str, Any]) -> str | None:
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return f"must match {schema['pattern']}, not {_shortened_repr(value)}"
    if len(value) < schema.get("minLength", 0):
        return f"must have at least {schema['minLength']} characters, not {len(value)}"
    if len(value) > schema.get("maxLength", len(value)):
        return f"must have at most {schema['maxLength']} characters, not {len(value)}"
    return None


def _explain_invalid_number(value: float, schema: Mapping[str, Any]) -> str | None:
    if value < schema.get("minimum", value):
        return f"must be at least {schema['minimum']}, not {value}"
    if value > schema.get("maximum", value):
        return f"must be at most {schema['maximum']}, not {value}"
    return None


def _shortened_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def make_command_tool(name: str, spec: CommandToolSpec, setting: ToolSetting) -> Tool:
    """Make the tool that the model gets."""
    env = build_tool_environment(spec.env, setting.environ)
    cwd = resolve_working_folder(name, spec.cwd, setting.folder)
    _check_command_spec(name, spec)
    program = find_program(name, spec.command[0], cwd, env)
    sandbox = choose_sandbox(name, spec, setting, cwd)

    async def run(asked: ToolInvocation) -> str:
        argv = (program, *build_command_argv(spec, asked.arguments)[1:])
        check_working_folder(cwd)
        ran = await run_process(
            argv if sandbox is None else await asyncio.to_thread(sandbox.wrap, argv, cwd),
            cwd=cwd,
            env=env,
            timeout=spec.timeout,
            max_output_bytes=spec.max_output_bytes,
            is_sandboxed=sandbox is not None,
        )
        return ran.to_tool_result()

    def text_of(asked: ToolInvocation) -> str:
        build_command_argv(spec, asked.arguments)
        return format_arguments_for_patterns(asked.arguments)

    return Tool(
        definition={
            "name": name,
            "description": spec.description,
            "input_schema": {
                "type": "object",
                "properties": spec.parameters,
                "required": [each for each in spec.parameters if each not in spec.optional],
            },
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        timeout=spec.timeout + 5 * TERMINATION_GRACE_S,
        check_permission=setting.gate.make_permission_check(build_permission_rules(spec), text_of),
    )


def build_command_argv(spec: CommandToolSpec, arguments: Mapping[str, Any]) -> list[str]:
    """Return the command with its values. Raises `ToolError` with what the model should write
    instead."""
    arguments_by_name = {name: value for name, value in arguments.items() if value is not None}
    if unknown := sorted(set(arguments_by_name) - set(spec.parameters)):
        names = ", ".join(spec.parameters) or "none"
        raise ToolError(f"unknown parameter {', '.join(unknown)}; the parameters are {names}")
    if missing := [
        each for each in spec.parameters if each not in (*arguments_by_name, *spec.optional)
    ]:
        raise ToolError(f"missing: {', '.join(missing)}")
    for name, value in arguments_by_name.items():
        if wrong := explain_invalid_value(value, spec.parameters[name]):
            raise ToolError(f"{name} {wrong}")
    out: list[str] = []
    for argument in spec.command:
        words = _fill_argument(argument, arguments_by_name)
        if "--" not in out:
            _refuse_options(argument, words, arguments_by_name)
        out += words
    return out


def _fill_argument(argument: str, given: Mapping[str, Any]) -> list[str]:
    """Fill one argument: nothing if a value is missing, several arguments for a list."""
    names = _PLACEHOLDER.findall(argument)
    if any(name not in given for name in names):
        return []
    lists = [name for name in names if isinstance(given[name], list)]
    each: Sequence[Any] = given[lists[0]] if lists else (None,)
    return [
        _PLACEHOLDER.sub(lambda m: _argument_text(item if m[1] in lists else given[m[1]]), argument)  # noqa: B023 - used at once
        for item in each
    ]


def _refuse_options(argument: str, filled: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse values that begin an argument with a dash, which the program would read as an
    option."""
    first = _PLACEHOLDER.match(argument)
    if first is None or isinstance(given.get(first[1]), int | float):
        return
    if wrong := next((each for each in filled if each.startswith("-")), None):
        raise ToolError(
            f"{first[1]} may not begin with a dash, which the program would read as an option: "
            f"{wrong[:80]!r}; for a file write ./{wrong[:40]}"
        )


def _argument_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if "\0" in text:
        raise ToolError("a value contains a NUL character, which is not allowed in an argument")
    return text


def _check_command_spec(name: str, spec: CommandToolSpec) -> None:
    """Raise `UnusableToolError` if the block itself is wrong."""
    placeholders = [set(_PLACEHOLDER.findall(argument)) for argument in spec.command]
    if placeholders[0]:
        raise UnusableToolError(name, "the program itself cannot be a parameter; write its name")
    parameter_names = ", ".join(spec.parameters) or "none"
    if strange := sorted(set[str]().union(*placeholders) - set(spec.parameters)):
        raise UnusableToolError(
            name,
            f"command uses {{{strange[0]}}}, but parameters has {parameter_names}; add it there",
        )
    if idle_parameters := sorted(set(spec.parameters) - set[str]().union(*placeholders)):
        raise UnusableToolError(
            name, f"command does not use {{{idle_parameters[0]}}}; add it, or remove the parameter"
        )
    if strange := sorted(set(spec.optional) - set(spec.parameters)):
        raise UnusableToolError(
            name, f"optional lists {strange[0]!r}, but parameters has {parameter_names}"
        )
    for argument, names in zip(spec.command, placeholders, strict=True):
        lists = sorted(n for n in names if spec.parameters[n].get("type") == "array")
        if len(lists) > 1:
            raise UnusableToolError(
                name, f"{argument!r} contains two lists; write a separate argument for each"
            )
    for parameter, schema in spec.parameters.items():
        _check_schema(name, parameter, schema)


def _check_schema(name: str, parameter: str, schema: Mapping[str, Any]) -> None:
    if strange := sorted(set(schema) - CHECKED_SCHEMA_KEYWORDS - DESCRIPTIVE_SCHEMA_KEYWORDS):
        raise UnusableToolError(
            name,
            f"parameters.{parameter}: {strange[0]!r} would not be checked; a command supports "
            f"{', '.join(sorted(CHECKED_SCHEMA_KEYWORDS))}. For more, write a python tool",
        )
    items = cast("Mapping[str, Any] | None", schema.get("items"))
    if schema.get("type") == "array" and items is not None:
        _check_schema(name, f"{parameter}.items", items)


def find_program(tool_name: str, program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Return the path of the program. Raises `UnusableToolError` if it does not exist."""
    if "/" in program:
        where = cwd / Path(program).expanduser()
        path = shutil.which(where)
        hint = f"{where} is not a program; correct the path, or make it executable (chmod +x)"
    else:
        path = shutil.which(program, path=env.get("PATH"))
        hint = f"the program {program!r} is not on the PATH; install it, or give its whole path"
    if path is None:
        raise UnusableToolError(tool_name, hint)
    return path
