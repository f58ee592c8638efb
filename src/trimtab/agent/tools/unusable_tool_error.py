"""What is wrong with a tool of `agent.yaml`, found before the model hears of it."""

from __future__ import annotations

from trimtab.errors import TrimtabError


class UnusableToolError(TrimtabError, ValueError):
    """A tool that cannot be offered: its block, what is wrong, and what to do."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tools.{tool}: {problem}")
        self.tool = tool
        """The block's name."""
        self.problem = problem
        """What is wrong, and what to do."""
