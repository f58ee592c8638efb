"""What tools are tested with: a toolbox, calls of it, and somebody who is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.agent.permissions import Answer, Question, nobody
from trimtab.agent.spec import AnyTool, CommandTool, McpTool, PythonTool, ShellTool
from trimtab.agent.toolbox import toolbox
from trimtab.session.tools import Failed, Invocation, Tool

BLOCKS = {"shell": ShellTool, "command": CommandTool, "python": PythonTool, "mcp": McpTool}


def block(kind: str, **own: Any) -> AnyTool:
    """A block of the file."""
    return BLOCKS[kind].model_validate({"kind": kind, **own})


def box(folder: Path, approve: Any = nobody, environ: Any = os.environ, **tools: Any):
    """A toolbox of blocks."""
    return toolbox(tools, folder, approve=approve, environ=environ)


def invocation(tool: Tool | str, arguments: Mapping[str, Any]) -> Invocation:
    name = tool if isinstance(tool, str) else tool.name
    return Invocation(name=name, arguments=arguments, key="s/0/m1.0/a", session="s")


async def call(tool: Tool, **arguments: Any) -> Any:
    """What it gives."""
    return await tool.run(invocation(tool, arguments))


async def failure(tool: Tool, **arguments: Any) -> str:
    """What it gives, marked as an error."""
    try:
        given = await tool.run(invocation(tool, arguments))
    except Failed as failed:
        content = failed.content
        return content if isinstance(content, str) else text(content)
    raise AssertionError(f"it did not fail: {given!r}")


def text(parts: Any) -> str:
    return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


@dataclass
class Person:
    """Somebody who gives the same answer to everything."""

    answer: Answer = "yes"
    asked: list[Question] = field(default_factory=list[Question])

    async def __call__(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answer
