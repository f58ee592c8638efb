"""The tools of `agent.yaml`, ready to be called."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from trimtab.agent.permissions import Approve, Gate
from trimtab.agent.spec import AnyTool, CommandTool, McpTool, PythonTool, ShellTool
from trimtab.agent.tools.command import command_tool
from trimtab.agent.tools.environment import variables
from trimtab.agent.tools.functions import python_tool
from trimtab.agent.tools.shell import shell_tool
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.session.tools import Tool


@asynccontextmanager
async def toolbox(
    tools: Mapping[str, AnyTool],
    folder: Path,
    *,
    approve: Approve,
    environ: Mapping[str, str],
) -> AsyncGenerator[list[Tool]]:
    """The tools, their servers started; what was started has ended afterwards.

    Raises ToolUnusable for the first of them that cannot be offered.
    """
    box = _Box(folder, Gate(approve=approve), environ)
    async with box.held:
        # Servers start side by side: each may take seconds.
        made = await asyncio.gather(
            *(box.made(name, spec) for name, spec in tools.items()), return_exceptions=True
        )
        found: list[Tool] = []
        for each in made:
            if isinstance(each, BaseException):
                raise each
            found += each
        _refuse_twins(found)
        yield found


class _Box:
    def __init__(self, folder: Path, gate: Gate, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.gate = gate
        self.environ = environ
        self.held = AsyncExitStack()
        """What ends with the box."""

    async def made(self, name: str, spec: AnyTool) -> list[Tool]:
        match spec:
            case ShellTool():
                return [shell_tool(name, spec, self.folder, self.gate, self.environ)]
            case CommandTool():
                return [command_tool(name, spec, self.folder, self.gate, self.environ)]
            case PythonTool():
                # It runs in this process, and looks there for what the file lets it see.
                os.environ.update(variables(spec.env, self.environ))
                return [python_tool(name, spec, self.folder, self.gate)]
            case McpTool():
                return await self._of_server(name, spec)

    async def _of_server(self, name: str, spec: McpTool) -> list[Tool]:
        try:
            # Only for those who use it: it is an extra, and takes its time to load.
            from trimtab.agent.tools.mcp import mcp_tools
            from trimtab.agent.tools.mcp_server import Server
        except ModuleNotFoundError as error:
            raise ToolUnusable(
                name, f"{error.name} is not installed: pip install 'trimtab[mcp]'"
            ) from error
        server = Server(name, spec, self.folder, self.environ)
        self.held.push_async_callback(server.close)
        return mcp_tools(server, spec, await server.offered(), self.gate)


def _refuse_twins(tools: list[Tool]) -> None:
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ToolUnusable(
            twice[0], "two tools have this name, one of them of an MCP server; rename one block"
        )
