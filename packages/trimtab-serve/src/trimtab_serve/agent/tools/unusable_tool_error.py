"""Problems with a tool of `agent.yaml` that are found before the model gets the tool."""

from __future__ import annotations

from trimtab.errors import TrimtabError


class UnusableToolError(TrimtabError, ValueError):
    """A tool cannot be offered. The text names its block, the problem and what to do."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tools.{tool}: {problem}")
        self.tool = tool
        """The block's name."""
        self.problem = problem
        """The problem, and what to do."""
