"""What the server adds to the command line; `trimtab.cli.extension` says what each name is for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab.stores.base import Store

COMMANDS = {
    "init": ("trimtab_serve.cli.init:init_command", "Write a working agent into a folder."),
    "doctor": (
        "trimtab_serve.cli.doctor:doctor_command",
        "Check an agent: key, model, window, tools.",
    ),
    "chat": ("trimtab_serve.cli.chat:chat_command", "Talk to an agent in the terminal."),
    "serve": (
        "trimtab_serve.cli.serve:serve_command",
        "Serve agents: HTTP, chat platforms, schedules.",
    ),
    "keys": ("trimtab_serve.cli.keys:keys", "Create and revoke the API keys of a server."),
    "schedule": ("trimtab_serve.cli.schedule:schedule", "List, run and pause schedules."),
    "user": ("trimtab_serve.cli.personal_data:user", "Export or erase all data of a user."),
    "tenant": (
        "trimtab_serve.cli.personal_data:tenant",
        "Export or erase all data of a tenant.",
    ),
    "erasures": ("trimtab_serve.cli.personal_data:erasures_command", "List past erasures."),
    "schema": (
        "trimtab_serve.cli.schema:print_schema_command",
        "Print the JSON Schema of agent.yaml.",
    ),
}
COMMANDS_RUNNING_TOOLS = ("chat", "doctor", "serve")
"""Commands that start an agent's tools."""


def prepare_command(name: str) -> None:
    """Withhold secrets: what reads the environment later must not find a key in it."""
    if name in COMMANDS_RUNNING_TOOLS:
        from trimtab_serve.agent.environment import withhold_secrets_from_tools

        withhold_secrets_from_tools()


def read_agent_store(agent_file: Path) -> str | None:
    """Return the store that an agent's file names, without loading the whole agent."""
    from trimtab_serve.agent.config import store_location

    return store_location.read_store_location(agent_file)


async def erase_everywhere(
    location: str, store: Store, session: str, handle: str, *, reason: str
) -> tuple[Sequence[str], Sequence[str]]:
    """Erase a message in the log, the queue and the schedules. A running server does it itself."""
    from trimtab_serve.forgetting.stored_sessions import erase_stored_message

    return await erase_stored_message(location, store, session, handle, why=reason)


async def delete_everywhere(location: str, store: Store, session: str) -> None:
    """Delete a session, its waiting messages and its schedules. A running server does it itself."""
    from trimtab_serve.forgetting.stored_sessions import delete_stored_session

    await delete_stored_session(location, store, session)


def forget_typed_texts(texts: Sequence[str]) -> None:
    """Remove texts from the history file of the chat."""
    import os

    from trimtab_serve.forgetting.history_file import locate_history_file, remove_history_lines

    remove_history_lines(locate_history_file(os.environ), texts)


async def migrate_jobs(database: str, *, plan: bool) -> list[str]:
    """Migrate the job queue, if its package is installed."""
    if find_spec("procrastinate") is None:
        return []
    from trimtab_serve.queue.postgres.job_queue_migrations import (
        list_missing_job_queue_migrations,
        migrate_job_queue,
    )

    return await (list_missing_job_queue_migrations if plan else migrate_job_queue)(database)
