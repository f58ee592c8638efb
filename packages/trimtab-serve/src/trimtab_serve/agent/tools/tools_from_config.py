"""The tools of `agent.yaml`, ready to be called."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from trimtab.session.tools import Tool
from trimtab_serve.agent.config.spec import (
    AnyToolSpec,
    CommandToolSpec,
    McpToolSpec,
    PythonToolSpec,
    ScheduleToolSpec,
    ShellToolSpec,
)
from trimtab_serve.agent.environment import select_variables_named_by_setting
from trimtab_serve.agent.tools.command import make_command_tool
from trimtab_serve.agent.tools.python_function import make_python_tool
from trimtab_serve.agent.tools.shell import make_shell_tool
from trimtab_serve.agent.tools.tool_setting import ToolSetting, UnusableToolError


@asynccontextmanager
async def open_tools(
    tool_specs: Mapping[str, AnyToolSpec], setting: ToolSetting
) -> AsyncGenerator[list[Tool]]:
    """Start the servers of the tools and return the tools. At the end, stop what was started.

    Raises `UnusableToolError` for the first tool that cannot be offered.
    """
    box = _ToolBuilder(setting)
    async with box.held:
        # Servers start side by side: each may take seconds.
        tool_lists = await asyncio.gather(
            *(box.build(name, spec) for name, spec in tool_specs.items()), return_exceptions=True
        )
        tools: list[Tool] = []
        for each in tool_lists:
            if isinstance(each, BaseException):
                raise each
            tools += each
        _refuse_duplicate_names(tools)
        yield tools


class _ToolBuilder:
    def __init__(self, setting: ToolSetting) -> None:
        self.setting = setting
        self.held = AsyncExitStack()
        """What is closed at the end."""

    async def build(self, name: str, spec: AnyToolSpec) -> list[Tool]:
        match spec:
            case ShellToolSpec():
                return [make_shell_tool(name, spec, self.setting)]
            case CommandToolSpec():
                return [make_command_tool(name, spec, self.setting)]
            case PythonToolSpec():
                # It runs in this process, and looks there for what the file lets it see.
                os.environ.update(select_variables_named_by_setting(spec.env, self.setting.environ))
                return [make_python_tool(name, spec, self.setting.folder, self.setting.gate)]
            case McpToolSpec():
                return await self._build_mcp_tools(name, spec)
            case ScheduleToolSpec():
                return []  # the server adds them: nothing else has a clock and a queue

    async def _build_mcp_tools(self, name: str, spec: McpToolSpec) -> list[Tool]:
        try:
            # Imported only if an agent uses it: it is an extra, and loads slowly.
            from trimtab_serve.agent.tools.mcp import McpServer, make_mcp_tools
        except ModuleNotFoundError as error:
            raise UnusableToolError(
                name, f"{error.name} is not installed: pip install 'trimtab[mcp]'"
            ) from error
        server = McpServer(name, spec, self.setting.folder, self.setting.environ)
        self.held.push_async_callback(server.close)
        return make_mcp_tools(server, spec, await server.list_tools(), self.setting.gate)


def _refuse_duplicate_names(tools: list[Tool]) -> None:
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UnusableToolError(
            twice[0], "two tools have this name, one of them from an MCP server; rename one block"
        )
