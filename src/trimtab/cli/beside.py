"""What the agent in this folder says of its store, for commands that need nothing else of it."""

from __future__ import annotations

from pathlib import Path

FILE = Path("agent.yaml")
"""The agent that a command is about where none is named."""


def store_beside() -> str | None:
    """The store that ./agent.yaml names; None where there is no such file, or it names none."""
    if not FILE.is_file():
        return None
    from trimtab.agent.place import store_in

    return store_in(FILE)
