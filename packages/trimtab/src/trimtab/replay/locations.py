"""Find the logs of coding agents, and the files of a folder that may be logs.

It imports no reader, so that a command can say at once what it will read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CLAUDE_CODE, CODEX, OPENCODE, PI = "Claude Code", "Codex", "opencode", "pi"
SUBAGENTS = " subagents"
"""What follows the name of a client in the kind of its subagents' sessions."""
RECORDING_SUFFIXES = (".json", ".jsonl")
"""Suffixes of the files to read in a folder, besides the database of opencode."""


class ClientLogs(NamedTuple):
    """Where one client keeps its logs."""

    kind: str
    """The client's name."""
    path: Path
    """The folder or the database."""


def list_client_logs(home: Path, environment: Mapping[str, str]) -> list[ClientLogs]:
    """Return the usual place of each supported client, whether it exists or not.

    Args:
        home: The user's home folder.
        environment: Environment variables. Each client has one that moves its folder.
    """

    def folder(variable: str, usual: str) -> Path:
        return Path(environment.get(variable) or home / usual).expanduser()

    return [
        ClientLogs(CLAUDE_CODE, folder("CLAUDE_CONFIG_DIR", ".claude") / "projects"),
        ClientLogs(CODEX, folder("CODEX_HOME", ".codex") / "sessions"),
        ClientLogs(OPENCODE, folder("XDG_DATA_HOME", ".local/share") / "opencode" / "opencode.db"),
        ClientLogs(PI, folder("PI_CODING_AGENT_DIR", ".pi/agent") / "sessions"),
    ]


def find_client(kind: str) -> str:
    """Return the client of a kind of session."""
    return kind.removesuffix(SUBAGENTS)


def list_recording_files(path: Path) -> list[Path]:
    """Return the files that may hold recordings: the file itself, or those of a folder."""
    if not path.is_dir():
        return [path]
    return [inner for inner in sorted(path.rglob("*")) if _may_hold_recordings(inner)]


def _may_hold_recordings(path: Path) -> bool:
    is_database = path.name.startswith("opencode") and path.suffix == ".db"
    return (is_database or path.name.endswith(RECORDING_SUFFIXES)) and path.is_file()
