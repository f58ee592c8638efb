"""Which store a command works on, how long it takes, and what it says where it cannot."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from trimtab.cli.beside import store_beside
from trimtab.cli.refusing import refused, warn_of_password
from trimtab.cli.words import plain
from trimtab.stores.choose import is_database, open_store
from trimtab.stores.errors import NoSession, StoreError, StoreUnavailable
from trimtab.stores.store import Store
from trimtab.wire import RequestChanged

T = TypeVar("T")

UNSAID = ""
"""What a command gets where --store is not typed and TRIMTAB_STORE is not set."""
DEFAULT = "./sessions"
CONNECTIONS = 2
"""To a database: a command does one thing at a time."""
PATIENCE = 1.0
"""Seconds after which a command says what it is doing."""
PIPED = 160
"""Characters of a line where nobody says how wide the paper is."""
OFFERED = 3
"""Ids that are offered in place of one that is not there."""
LOOKED_AT = 1_000
"""Sessions among which they are looked for."""


class Unsaid(str):
    """A store that nobody had to name: a hint need not name it either."""

    __slots__ = ()


def _chosen(context: typer.Context, place: str) -> str:
    """The store that was named, else that of the agent here, else ./sessions."""
    if place or context.resilient_parsing:
        warn_of_password(context, "store", place, instead="TRIMTAB_STORE")
        return place
    try:
        return Unsaid(store_beside() or DEFAULT)
    except ValueError as error:
        raise refused(f"{error}; or say where the sessions are with --store") from error


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="TRIMTAB_STORE",
        callback=_chosen,
        show_default=False,
        help="A folder of sessions, or a database: postgresql://user@host/name. Unset, "
        "`session.store` of ./agent.yaml, else ./sessions.",
    ),
]
SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="The session.")]
HandleArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="A message m12, its part m12.0, or m3-m50.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


class Doing:
    """What a command is about, for those who wait."""

    def __init__(self, console: Console, text: str) -> None:
        self._status = console.status(plain(text))
        self._text = text

    def start(self) -> None:
        self._status.start()

    def stop(self) -> None:
        self._status.stop()

    def count(self, done: int, of: int, noun: str) -> None:
        """How far it is."""
        self._status.update(f"{plain(self._text)}: {done:,} of {of:,} {noun}")


def work(
    place: str, doing: str, verb: Callable[[Store, Doing], Awaitable[T]], *, new: bool = False
) -> T:
    """Run a verb on a store; what cannot be done is one line on standard error and status 2.

    `new` allows a folder that is not there yet.
    """
    with friendly(), waiting(doing) as told:
        if isinstance(place, Unsaid) and not (new or is_database(place) or Path(place).exists()):
            raise StoreUnavailable(
                f"there are no sessions here yet: {place} is not there, `trimtab chat` makes it. "
                "Where they are elsewhere, name the place with --store or in TRIMTAB_STORE"
            )
        return asyncio.run(_run(place, verb, told, new=new))


@contextmanager
def friendly() -> Generator[None]:
    """Turn errors that name their cause into one line each; a mistake of ours stays a traceback."""
    try:
        yield
    except RequestChanged as error:
        raise refused(str(error), status=1) from error
    except (BrokenPipeError, KeyError, IndexError):
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise refused(f"{where}{error.strerror or error}") from error
    except (LookupError, StoreError, ValueError) as error:
        raise refused(str(error)) from error


@contextmanager
def waiting(doing: str) -> Generator[Doing]:
    """Show what is being done once it takes a while, on standard error."""
    told = Doing(Console(stderr=True), doing)
    # A thread: folding a long log does not let the event loop in.
    timer = threading.Timer(PATIENCE, told.start)
    timer.start()
    try:
        yield told
    finally:
        timer.cancel()
        timer.join()
        told.stop()


def page() -> Console:
    """Where results go: as wide as the terminal, or plain and wide into a pipe."""
    if sys.stdout.isatty():
        return Console()
    told = os.environ.get("COLUMNS", "")
    width = int(told) if told.isdecimal() and int(told) else PIPED
    return Console(color_system=None, force_terminal=False, width=width)


def raw(text: str) -> None:
    """A text exactly as it is, but for a terminal, which must not obey it."""
    if sys.stdout.isatty():
        typer.echo(plain(text))
    else:
        typer.echo(text.encode("utf-8", "surrogatepass"), nl=False)


def here(place: str) -> str:
    """What must be typed besides, so that a hint works when it is copied."""
    # A database's address may hold a password, and comes from the environment as a rule.
    return "" if isinstance(place, Unsaid) or is_database(place) else f" --store {place}"


def where(place: str) -> str:
    """The store in words that tell no password."""
    return "the database" if is_database(place) else place


async def _run(
    place: str, verb: Callable[[Store, Doing], Awaitable[T]], told: Doing, *, new: bool
) -> T:
    store = await open_store(place, new=new, connections=CONNECTIONS)
    try:
        return await verb(store, told)
    finally:
        await store.close()


async def known(store: Store, session: str) -> int:
    """The position of a session that must exist."""
    position = await store.position(session)
    if not position:
        raise NoSession(session, like=await _served(store, session))
    return position


async def _served(store: Store, name: str) -> list[str]:
    """Ids of served sessions, TENANT/AGENT/NAME, that have this name."""
    try:
        found = await store.sessions(limit=LOOKED_AT)
    except StoreError:
        return []  # a damaged log is not what was asked about
    return [one.session for one in found if one.session.endswith(f"/{name}")][:OFFERED]
