"""What all tools of an agent have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import TrimtabError
from trimtab_serve.agent.tools.permissions.rules import PermissionGate


class UnusableToolError(TrimtabError, ValueError):
    """A tool cannot be offered. The text names its block, the problem and what to do."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tools.{tool}: {problem}")
        self.tool = tool
        """The block's name."""
        self.problem = problem
        """The problem, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetting:
    """The folder, the permissions and the environment of an agent's tools."""

    folder: Path
    """The folder of the agent's file."""
    gate: PermissionGate
    """Decides whether a call may run."""
    environ: Mapping[str, str]
    """The environment in which variables are looked up."""
    private_paths: tuple[Path, ...] = ()
    """Files and folders that a sandbox hides."""
    agent_files: tuple[Path, ...] = ()
    """Files that cannot be changed from a sandbox."""
    working_folders: tuple[Path, ...] = ()
    """Folders that tools run in. None of them can be moved or replaced from a sandbox."""
