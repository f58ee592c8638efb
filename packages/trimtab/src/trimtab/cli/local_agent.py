"""Find the store of the agent in this folder without loading the whole agent."""

from __future__ import annotations

from pathlib import Path

from trimtab.cli.extension import find_extension

DEFAULT_AGENT_PATH = Path("agent.yaml")
"""The agent that a command uses if the user names none."""


def read_local_agent_store_location() -> str | None:
    """Return the store that ./agent.yaml names. None if there is no such file or setting."""
    if not DEFAULT_AGENT_PATH.is_file():
        return None
    extension = find_extension()
    if extension is None:
        raise ValueError(
            f"{DEFAULT_AGENT_PATH} names the store, and trimtab-serve, which reads it, is not "
            "installed; run: pip install 'trimtab[agent]'"
        )
    return extension.read_agent_store(DEFAULT_AGENT_PATH)
