"""What the server's distribution adds to the command line: its commands, and its part of ours.

The library's commands work without it. It knows where else data of a session is: in the queue, in
schedules, and in the history file of the chat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from trimtab.stores.base import Store

DEFAULT_AGENT_PATH = Path("agent.yaml")
"""The agent that a command uses if the user names none."""
ENTRY_POINT_GROUP = "trimtab.commands"


class CommandExtension(Protocol):
    """A module that adds commands."""

    COMMANDS: Mapping[str, tuple[str, str]]
    """Names of commands, each with its import path and its short help."""

    def prepare_command(self, name: str) -> None:
        """Called before anything else with the command that the user typed."""
        ...

    def read_agent_store(self, agent_file: Path) -> str | None:
        """Return the store that an agent's file names. None if it names none."""
        ...

    async def erase_everywhere(
        self, location: str, store: Store, session: str, handle: str, *, reason: str
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Erase a message everywhere. Return the erased handles, and the forks with copies."""
        ...

    async def delete_everywhere(self, location: str, store: Store, session: str) -> None:
        """Delete a session, and its data outside the store."""
        ...

    def forget_typed_texts(self, texts: Sequence[str]) -> None:
        """Remove texts from the history file of the chat."""
        ...

    async def migrate_jobs(self, database: str, *, plan: bool) -> list[str]:
        """Apply further migrations, or only list those that are pending."""
        ...


@cache
def find_extension() -> CommandExtension | None:
    """Return the installed extension. None if the library is alone."""
    for entry in entry_points(group=ENTRY_POINT_GROUP, name="serve"):
        return cast("CommandExtension", entry.load())
    return None


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
