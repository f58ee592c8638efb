"""What all tools of an agent have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab_serve.agent.tools.permissions.rules import PermissionGate


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
