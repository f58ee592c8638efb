"""Open the store of a command, show its progress, and print its errors."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from trimtab.cli.extension import read_local_agent_store_location
from trimtab.cli.stderr_messages import print_error_for_exit, warn_about_typed_password
from trimtab.cli.text_format import escape_control_characters
from trimtab.engine.log.event import Event
from trimtab.engine.log.field_types import check_field_types
from trimtab.errors import RequestChangedError, SessionNotFound, StoreError, StoreUnavailable
from trimtab.integrations.session_ids import make_session_id
from trimtab.session.loading import explain_damage
from trimtab.stores.base import Store
from trimtab.stores.factory import is_database_address, open_store

T = TypeVar("T")

UNSET_STORE = ""
"""The value if --store is not given and TRIMTAB_STORE is not set."""
DEFAULT_STORE_FOLDER = "./sessions"
COMMAND_STORE_CONNECTIONS = 2
"""Database connections of a command, which does one thing at a time."""
PROGRESS_DELAY_S = 1.0
"""Seconds after which a command shows its progress."""
PIPED_WIDTH_CHARS = 160
"""Characters of a line if the output is not a terminal."""
MAX_SUGGESTED_SESSIONS = 3
"""Similar ids to offer if a session does not exist."""
MAX_SEARCHED_SESSIONS = 1_000
"""Sessions to search for similar ids."""


class ImplicitStoreLocation(str):
    """A store that the user did not name, so that hints do not name it either."""

    __slots__ = ()


def _resolve_store_option(context: typer.Context, place: str) -> str:
    """Return the store that the user named, that of the agent here, or ./sessions."""
    if place or context.resilient_parsing:
        warn_about_typed_password(context, "store", place, variable="TRIMTAB_STORE")
        return place
    try:
        return ImplicitStoreLocation(read_local_agent_store_location() or DEFAULT_STORE_FOLDER)
    except ValueError as error:
        raise print_error_for_exit(
            f"{error}; or name the place of the sessions with --store"
        ) from error


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="TRIMTAB_STORE",
        callback=_resolve_store_option,
        show_default=False,
        help="A folder of sessions, or a database: postgresql://user@host/name. Default: "
        "`session.store` of ./agent.yaml, then ./sessions.",
    ),
]
SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


def _remove_tag(handle: str) -> str:
    """Return a handle without the tag that the sidecar's handles may end in."""
    return handle.partition("~")[0]


HandleArgument = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE",
        help="A message (m12), a part (m12.0) or a range (m3-m50).",
        callback=_remove_tag,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


class ProgressStatus:
    """Shows what a slow command is doing."""

    def __init__(self, console: Console, text: str) -> None:
        self._status = console.status(escape_control_characters(text))
        self._text = text

    def start(self) -> None:
        self._status.start()

    def stop(self) -> None:
        self._status.stop()

    def show_text(self, text: str) -> None:
        """Show what is being done now."""
        self._status.update(escape_control_characters(text))

    def show_count(self, done: int, total: int, noun: str) -> None:
        """Show how much is done."""
        self._status.update(
            f"{escape_control_characters(self._text)}: {done:,} of {total:,} {noun}"
        )


def run_on_store(
    store_location: str,
    description: str,
    action: Callable[[Store, ProgressStatus], Awaitable[T]],
    *,
    allow_new_folder: bool = False,
) -> T:
    """Run an action on a store. Print one line and exit with status 2 if it fails.

    `allow_new_folder` allows a folder that does not exist yet.
    """
    with report_known_errors(), show_progress_if_slow(description) as status:
        if isinstance(store_location, ImplicitStoreLocation) and not (
            allow_new_folder or is_database_address(store_location) or Path(store_location).exists()
        ):
            raise StoreUnavailable(
                f"there are no sessions here yet: {store_location} does not exist; `trimtab chat` "
                "creates it. If the sessions are elsewhere, name the place with --store or in "
                "TRIMTAB_STORE"
            )
        return asyncio.run(
            _open_and_run(store_location, action, status, allow_new_folder=allow_new_folder)
        )


@contextmanager
def report_known_errors() -> Generator[None]:
    """Turn known errors into one line each. Errors in our own code stay tracebacks."""
    try:
        yield
    except RequestChangedError as error:
        raise print_error_for_exit(str(error), exit_status=1) from error
    except (BrokenPipeError, KeyError, IndexError):
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise print_error_for_exit(f"{where}{error.strerror or error}") from error
    except (LookupError, StoreError, ValueError) as error:
        raise print_error_for_exit(str(error)) from error


@contextmanager
def show_progress_if_slow(description: str) -> Generator[ProgressStatus]:
    """Show on standard error what is being done, if it takes a while."""
    status = ProgressStatus(Console(stderr=True), description)
    # A thread: folding a long log does not let the event loop in.
    timer = threading.Timer(PROGRESS_DELAY_S, status.start)
    timer.start()
    try:
        yield status
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def make_output_console() -> Console:
    """Return the console for results. It is plain and wide if the output is a pipe."""
    if sys.stdout.isatty():
        return Console()
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else PIPED_WIDTH_CHARS
    return Console(color_system=None, force_terminal=False, width=width)


def print_exact_text(text: str) -> None:
    """Print a text exactly, except that a terminal must not obey its control characters."""
    if sys.stdout.isatty():
        typer.echo(escape_control_characters(text))
    else:
        typer.echo(text.encode("utf-8", "surrogatepass"), nl=False)


def format_store_option(store_location: str) -> str:
    """Return the option that a hint needs so that the user can copy it."""
    # A database's address may hold a password, and comes from the environment as a rule.
    return (
        ""
        if isinstance(store_location, ImplicitStoreLocation) or is_database_address(store_location)
        else f" --store {store_location}"
    )


def describe_store(store_location: str) -> str:
    """Name the store without its password."""
    return "the database" if is_database_address(store_location) else store_location


async def _open_and_run(
    store_location: str,
    action: Callable[[Store, ProgressStatus], Awaitable[T]],
    progress: ProgressStatus,
    *,
    allow_new_folder: bool,
) -> T:
    store = await open_store(
        store_location, allow_new_folder=allow_new_folder, max_connections=COMMAND_STORE_CONNECTIONS
    )
    # Somebody may have changed a log. A wrong type would otherwise end in a traceback, anywhere.
    setattr(store, "events", partial(_check_events, store.events))  # noqa: B010 - any store
    try:
        return await action(store, progress)
    finally:
        await store.close()


async def _check_events(
    read_events: Callable[..., AsyncIterator[Event]], session: str, *spans: Any
) -> AsyncIterator[Event]:
    async for event in read_events(session, *spans):
        with explain_damage(session):
            check_field_types(event)
        yield event


async def require_session_position(store: Store, session: str) -> int:
    """Return the position of a session. Raise `SessionNotFound` if it does not exist."""
    position = await store.position(session)
    if not position:
        similar_ids = await _find_served_sessions(store, session)
        similar_ids += await _find_session_of_conversation(store, session)
        raise SessionNotFound(session, similar_ids=similar_ids)
    return position


async def _find_session_of_conversation(store: Store, conversation_id: str) -> list[str]:
    """Return the id of the session of a framework's conversation, if the store has it."""
    session = make_session_id(conversation_id)
    return [session] if await store.position(session) else []


async def _find_served_sessions(store: Store, name: str) -> list[str]:
    """Return the ids of served sessions, TENANT/AGENT/NAME, with this name."""
    try:
        entries = await store.sessions(limit=MAX_SEARCHED_SESSIONS)
    except StoreError:
        return []  # a damaged log is not what was asked about
    return [one.session for one in entries if one.session.endswith(f"/{name}")][
        :MAX_SUGGESTED_SESSIONS
    ]
