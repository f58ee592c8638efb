"""What tools are tested with: a toolbox, calls of it, and somebody who is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.session.tools import Tool, ToolError, ToolInvocation
from trimtab_serve.agent.config.spec import (
    AnyToolSpec,
    CommandToolSpec,
    McpToolSpec,
    PythonToolSpec,
    ShellToolSpec,
)
from trimtab_serve.agent.tools.permissions.rules import (
    ApprovalAnswer,
    ApprovalRequest,
    PermissionGate,
    decline_unattended,
)
from trimtab_serve.agent.tools.tool_setting import ToolSetting
from trimtab_serve.agent.tools.tools_from_config import open_tools

BLOCKS = {
    "shell": ShellToolSpec,
    "command": CommandToolSpec,
    "python": PythonToolSpec,
    "mcp": McpToolSpec,
}


def block(kind: str, **own: Any) -> AnyToolSpec:
    """A block of the file."""
    return BLOCKS[kind].model_validate({"kind": kind, **own})


def box(folder: Path, approve: Any = decline_unattended, environ: Any = os.environ, **tools: Any):
    """A toolbox of blocks."""
    gate = PermissionGate(approve=approve)
    return open_tools(tools, ToolSetting(folder=folder, gate=gate, environ=environ))


def invocation(tool: Tool | str, arguments: Mapping[str, Any]) -> ToolInvocation:
    name = tool if isinstance(tool, str) else tool.name
    return ToolInvocation(name=name, arguments=arguments, key="s/0/m1.0/a", session="s")


async def call(tool: Tool, **arguments: Any) -> Any:
    """What it gives."""
    return await tool.run(invocation(tool, arguments))


async def failure(tool: Tool, **arguments: Any) -> str:
    """What it gives, marked as an error."""
    try:
        answer = await tool.run(invocation(tool, arguments))
    except ToolError as tool_error:
        content = tool_error.content
        return content if isinstance(content, str) else text(content)
    raise AssertionError(f"it did not fail: {answer!r}")


def text(parts: Any) -> str:
    return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


@dataclass
class Person:
    """Somebody who gives the same answer to everything."""

    answer: ApprovalAnswer = "yes"
    asked: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        return self.answer
