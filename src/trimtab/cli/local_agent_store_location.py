"""Find the store of the agent in this folder without loading the whole agent."""

from __future__ import annotations

from pathlib import Path

DEFAULT_AGENT_PATH = Path("agent.yaml")
"""The agent that a command uses if the user names none."""


def read_local_agent_store_location() -> str | None:
    """Return the store that ./agent.yaml names. None if there is no such file or setting."""
    if not DEFAULT_AGENT_PATH.is_file():
        return None
    from trimtab.agent.config.store_location import read_store_location

    return read_store_location(DEFAULT_AGENT_PATH)
