"""What all tools of an agent are made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.agent.tools.permissions.rules import PermissionGate


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetting:
    """Where the tools of an agent run, and who is asked about them."""

    folder: Path
    """The folder of the agent's file."""
    gate: PermissionGate
    """Who is asked."""
    environ: Mapping[str, str]
    """Where variables are looked up."""
    private_paths: tuple[Path, ...] = ()
    """What a sandbox hides."""
    agent_files: tuple[Path, ...] = ()
    """What cannot be changed from a sandbox."""
