"""What the agent in this folder says of its store, for commands that need nothing else of it."""

from __future__ import annotations

from pathlib import Path

DEFAULT_AGENT_PATH = Path("agent.yaml")
"""The agent that a command is about where none is named."""


def read_local_agent_store_location() -> str | None:
    """The store that ./agent.yaml names; None where there is no such file, or it names none."""
    if not DEFAULT_AGENT_PATH.is_file():
        return None
    from trimtab.agent.config.store_location import read_store_location

    return read_store_location(DEFAULT_AGENT_PATH)
