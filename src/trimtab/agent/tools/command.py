"""A command with places for values: the model fills them in, and no shell reads it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from trimtab.agent.permissions import Gate, rendered, rules_of
from trimtab.agent.spec import CommandTool
from trimtab.agent.tools.environment import environment
from trimtab.agent.tools.process import GRACE, run_process
from trimtab.agent.tools.shell import working_folder
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.agent.tools.values import CHECKED, TOLD, wrong_value
from trimtab.session.tools import Failed, Invocation, Tool

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def command_tool(
    name: str, spec: CommandTool, folder: Path, gate: Gate, environ: Mapping[str, str]
) -> Tool:
    """The tool as the model gets it."""
    env = environment(spec.env, environ)
    cwd = working_folder(name, spec.cwd, folder)
    _check(name, spec)
    program = found_program(name, spec.command[0], cwd, env)

    async def run(asked: Invocation) -> str:
        ran = await run_process(
            (program, *filled_in(spec, asked.arguments)[1:]),
            cwd=cwd,
            env=env,
            timeout=spec.timeout,
            max_output_bytes=spec.max_output_bytes,
        )
        return ran.result()

    def text_of(asked: Invocation) -> str:
        filled_in(spec, asked.arguments)
        return rendered(asked.arguments)

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
        timeout=spec.timeout + 5 * GRACE,
        permit=gate.permit(rules_of(spec), text_of),
    )


def filled_in(spec: CommandTool, arguments: Mapping[str, Any]) -> list[str]:
    """The command with its values; raises Failed with what the model should give instead."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if unknown := sorted(set(given) - set(spec.parameters)):
        known = ", ".join(spec.parameters) or "none"
        raise Failed(f"no parameter is called {', '.join(unknown)}; there is {known}")
    if missing := [each for each in spec.parameters if each not in (*given, *spec.optional)]:
        raise Failed(f"missing: {', '.join(missing)}")
    for name, value in given.items():
        if wrong := wrong_value(value, spec.parameters[name]):
            raise Failed(f"{name} {wrong}")
    out: list[str] = []
    for argument in spec.command:
        filled = _filled(argument, given)
        if "--" not in out:
            _refuse_options(argument, filled, given)
        out += filled
    return out


def _filled(argument: str, given: Mapping[str, Any]) -> list[str]:
    """One argument with its values: none if one is missing, several for a list."""
    names = _PLACE.findall(argument)
    if any(name not in given for name in names):
        return []
    lists = [name for name in names if isinstance(given[name], list)]
    each: Sequence[Any] = given[lists[0]] if lists else (None,)
    return [
        _PLACE.sub(lambda m: _text(item if m[1] in lists else given[m[1]]), argument)  # noqa: B023 - used at once
        for item in each
    ]


def _refuse_options(argument: str, filled: Sequence[str], given: Mapping[str, Any]) -> None:
    """A value at the beginning of an argument must not become an option of the program."""
    first = _PLACE.match(argument)
    if first is None or isinstance(given.get(first[1]), int | float):
        return
    if wrong := next((each for each in filled if each.startswith("-")), None):
        raise Failed(
            f"{first[1]} may not begin with a dash, which the program would read as an option: "
            f"{wrong[:80]!r}; for a file write ./{wrong[:40]}"
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if "\0" in text:
        raise Failed("a value contains a NUL character, which no argument can")
    return text


def _check(name: str, spec: CommandTool) -> None:
    """What is wrong with the block itself."""
    used = [set(_PLACE.findall(argument)) for argument in spec.command]
    if used[0]:
        raise ToolUnusable(name, "the program itself may not come from the model; write its name")
    known = ", ".join(spec.parameters) or "none"
    if strange := sorted(set[str]().union(*used) - set(spec.parameters)):
        raise ToolUnusable(
            name, f"command uses {{{strange[0]}}}, and parameters has {known}; add it there"
        )
    if unused := sorted(set(spec.parameters) - set[str]().union(*used)):
        raise ToolUnusable(
            name, f"command uses no {{{unused[0]}}}; add it, or remove the parameter"
        )
    if strange := sorted(set(spec.optional) - set(spec.parameters)):
        raise ToolUnusable(name, f"optional names {strange[0]!r}, and parameters has {known}")
    for argument, names in zip(spec.command, used, strict=True):
        lists = sorted(n for n in names if spec.parameters[n].get("type") == "array")
        if len(lists) > 1:
            raise ToolUnusable(name, f"{argument!r} holds two lists; give each its own argument")
    for parameter, schema in spec.parameters.items():
        _check_schema(name, parameter, schema)


def _check_schema(name: str, parameter: str, schema: Mapping[str, Any]) -> None:
    if strange := sorted(set(schema) - CHECKED - TOLD):
        raise ToolUnusable(
            name,
            f"parameters.{parameter}: {strange[0]!r} would not be checked; a command knows "
            f"{', '.join(sorted(CHECKED))}. For more, write a python tool",
        )
    items = cast("Mapping[str, Any] | None", schema.get("items"))
    if schema.get("type") == "array" and items is not None:
        _check_schema(name, f"{parameter}.items", items)


def found_program(name: str, program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """The program as it is started; it must be there."""
    if "/" in program:
        where = cwd / Path(program).expanduser()
        found = shutil.which(where)
        hint = f"{where} is no program; correct the path, or make it executable (chmod +x)"
    else:
        found = shutil.which(program, path=env.get("PATH"))
        hint = f"the program {program!r} is not on the PATH; install it, or give its whole path"
    if found is None:
        raise ToolUnusable(name, hint)
    return found
