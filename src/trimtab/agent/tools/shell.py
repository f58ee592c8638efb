"""A shell: the model writes the command."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.agent.permissions import Gate, rules_of
from trimtab.agent.spec import ShellTool
from trimtab.agent.tools.environment import environment
from trimtab.agent.tools.process import GRACE, run_process
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.session.tools import Failed, Invocation, Tool

DESCRIPTION = (
    "Run a command with {shell} and get what it prints, stdout and stderr together. Each command "
    "starts anew in the same folder: variables and `cd` do not last. There is no terminal and no "
    "input, so nothing may ask questions. It is stopped after {timeout:g} seconds, and what it "
    "leaves running in the background ends with it. Of very long output the middle is left out."
)


def shell_tool(
    name: str, spec: ShellTool, folder: Path, gate: Gate, environ: Mapping[str, str]
) -> Tool:
    """The tool as the model gets it."""
    env = environment(spec.env, environ)
    shell = shutil.which("bash", path=env.get("PATH")) or "/bin/sh"
    cwd = working_folder(name, spec.cwd, folder)
    described = spec.description or DESCRIPTION.format(shell=Path(shell).name, timeout=spec.timeout)

    async def run(asked: Invocation) -> str:
        ran = await run_process(
            (shell, "-c", "--", command_of(asked.arguments)),
            cwd=cwd,
            env=env,
            timeout=spec.timeout,
            max_output_bytes=spec.max_output_bytes,
        )
        return ran.result()

    parameters = {"command": {"type": "string", "description": "The command."}}
    return Tool(
        definition={
            "name": name,
            "description": described,
            "input_schema": {
                "type": "object",
                "properties": parameters,
                "required": ["command"],
            },
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        timeout=spec.timeout + 5 * GRACE,
        permit=gate.permit(rules_of(spec), lambda asked: command_of(asked.arguments)),
    )


def command_of(arguments: Mapping[str, Any]) -> str:
    """What the model wrote, if it is a command at all."""
    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip():
        raise Failed("the argument `command` is missing: a text with the command to run")
    if "\0" in command:
        raise Failed("the command contains a NUL character, which no command can")
    return command


def working_folder(name: str, cwd: str, folder: Path) -> Path:
    """Where it runs; it must be there."""
    where = folder / Path(cwd).expanduser()
    if not where.is_dir():
        raise ToolUnusable(name, f"cwd {cwd!r} is no folder ({where}); make it, or correct cwd")
    return where.resolve()
