"""A shell: the model writes the command."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.session.tools import Tool, ToolError, ToolInvocation
from trimtab_serve.agent.config.spec import ShellToolSpec
from trimtab_serve.agent.environment import build_tool_environment
from trimtab_serve.agent.tools.permissions.rules import build_permission_rules
from trimtab_serve.agent.tools.process import TERMINATION_GRACE_S, run_process
from trimtab_serve.agent.tools.sandbox import choose_sandbox
from trimtab_serve.agent.tools.tool_setting import ToolSetting, UnusableToolError

SHELL_TOOL_DESCRIPTION = (
    "Run a command with {shell} and get what it prints, stdout and stderr together. Each command "
    "starts again in the same folder: variables and `cd` do not last. There is no terminal and no "
    "input, so nothing may ask questions. It is stopped after {timeout:g} seconds, and what it "
    "leaves running in the background ends with it. The middle of very long output is left out."
)


SANDBOX_DESCRIPTION = (
    " It runs in a sandbox: only this folder and /tmp can be written to, and what is in /tmp goes "
    "with each command."
)
NO_NETWORK_DESCRIPTION = " There is no network."


def make_shell_tool(name: str, spec: ShellToolSpec, setting: ToolSetting) -> Tool:
    """Make the tool that the model gets."""
    env = build_tool_environment(spec.env, setting.environ)
    shell = shutil.which("bash", path=env.get("PATH")) or "/bin/sh"
    cwd = resolve_working_folder(name, spec.cwd, setting.folder)
    sandbox = choose_sandbox(name, spec, setting, cwd)
    description = spec.description or SHELL_TOOL_DESCRIPTION.format(
        shell=Path(shell).name, timeout=spec.timeout
    )
    if sandbox is not None:
        description += SANDBOX_DESCRIPTION + ("" if sandbox.network else NO_NETWORK_DESCRIPTION)

    async def run(asked: ToolInvocation) -> str:
        check_working_folder(cwd)
        argv = (shell, "-c", "--", require_shell_command(asked.arguments))
        ran = await run_process(
            argv if sandbox is None else await asyncio.to_thread(sandbox.wrap, argv, cwd),
            cwd=cwd,
            env=env,
            timeout=spec.timeout,
            max_output_bytes=spec.max_output_bytes,
            is_sandboxed=sandbox is not None,
        )
        return ran.to_tool_result()

    parameters = {"command": {"type": "string", "description": "The command."}}
    return Tool(
        definition={
            "name": name,
            "description": description,
            "input_schema": {
                "type": "object",
                "properties": parameters,
                "required": ["command"],
            },
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        timeout=spec.timeout + 5 * TERMINATION_GRACE_S,
        check_permission=setting.gate.make_permission_check(
            build_permission_rules(spec), lambda asked: require_shell_command(asked.arguments)
        ),
    )


def require_shell_command(arguments: Mapping[str, Any]) -> str:
    """Return the command that the model wrote. Raises `ToolError` if it is missing or invalid."""
    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip():
        raise ToolError("the argument `command` is missing: a text with the command to run")
    if "\0" in command:
        raise ToolError("the command contains a NUL character, which is not allowed")
    return command


def resolve_working_folder(tool_name: str, cwd: str, folder: Path) -> Path:
    """Return the folder that the tool runs in. Raises `UnusableToolError` if it does not exist."""
    where = folder / Path(cwd).expanduser()
    if not where.is_dir():
        raise UnusableToolError(
            tool_name, f"cwd {cwd!r} is not a folder ({where}); create it, or correct cwd"
        )
    return where.resolve()


def check_working_folder(cwd: Path) -> None:
    """Raise `ToolError` if a symbolic link has taken the place of the folder, or of one above it.
    A program that runs there would write to another folder."""
    if cwd.resolve() != cwd:
        raise ToolError(
            f"the working folder {cwd} was replaced by a symbolic link since the start, so "
            "nothing was run; put the folder back"
        )
