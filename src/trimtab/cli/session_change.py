"""The commands that take sessions elsewhere, copy them, or destroy what they hold."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator, Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from trimtab.cli.chat.history import forget_typed, history_file, said_by_users
from trimtab.cli.session_why import messages, named
from trimtab.cli.storing import (
    UNSAID,
    Doing,
    HandleArgument,
    SessionArgument,
    StoreOption,
    YesOption,
    friendly,
    here,
    known,
    where,
    work,
)
from trimtab.cli.words import brief, counted, listed, plain
from trimtab.core.branching import branch
from trimtab.core.edits import parse_handle
from trimtab.core.event import Event, Repair, Said
from trimtab.core.recall import part_text
from trimtab.session import portable
from trimtab.stores.errors import PositionTaken
from trimtab.stores.files.disk import open_file
from trimtab.stores.store import Store

EVERY = 1_000
"""Events between two words on how far it is."""


def export(
    session: SessionArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; unset, standard output.")
    ] = None,
    store: StoreOption = UNSAID,
) -> None:
    """Write a session to one file, which `import` takes into any store."""

    async def write(kept: Store, told: Doing) -> int:
        total, lines = await known(kept, session) + 2, 0
        with _into(output) as file:
            async for line in portable.export(kept, session):
                file.write(f"{line}\n")
                lines += 1
                if lines % EVERY == 0:
                    told.count(lines, total, "lines")
        return lines - 2

    count = work(store, f"exporting {session}", write)
    if output is not None:
        _say(f"exported {counted(count, 'event')} of {session} to {output}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported session, - for stdin.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Its new id; unset, the one it had.")
    ] = None,
    store: StoreOption = UNSAID,
) -> None:
    """Take an exported session into a store: all of it, or nothing where the file is not whole."""

    async def lines(told: Doing) -> AsyncIterator[str]:
        with _from(file) as source:
            total = 0
            for number, line in enumerate(source, 1):
                if number == 1:
                    total = _promised(line)
                if number % EVERY == 0:
                    told.count(number, total, "lines")
                yield line

    done = work(
        store,
        f"importing {file}",
        lambda kept, told: portable.import_session(kept, name, lines(told)),
        new=True,
    )
    was = "" if done.session == done.exported else f", which was {done.exported},"
    _say(
        f"imported {counted(done.events, 'event')} as session {done.session}{was} into "
        f"{where(store)}; see it with: trimtab session show {done.session}{here(store)}"
    )


def fork(
    session: SessionArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the copy.")],
    at: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Copy up to this event; unset, all.")
    ] = None,
    store: StoreOption = UNSAID,
) -> None:
    """Begin a new session that shares the past of another up to a position."""

    async def copy(kept: Store, _: Doing) -> tuple[int, int]:
        position = await known(kept, session)
        if at is not None and at > position:
            raise ValueError(
                f"session {session!r} has {position:,} events, so it cannot be forked at {at:,}; "
                f"give --at 1 to {position}"
            )
        if taken := await kept.position(new):
            raise _exists(new, taken)
        # Not by way of a Session: it would ask for a policy that is a function of the caller's.
        upto = at or position
        events = [event async for event in kept.events(session)]
        past, now = events[:upto], time.time()
        for body in branch(events[upto:], parent=session, at=upto):
            past.append(Event(seq=len(past) + 1, at=now, body=body))
        try:
            await kept.append(new, past)
        except PositionTaken as error:
            raise _exists(new, error.position) from error
        return upto, position

    upto, position = work(store, f"forking {session}", copy)
    _say(
        f"forked {session} at event {upto:,} of {position:,} as {new}; see it with: "
        f"trimtab session show {new}{here(store)}"
    )


def erase(
    session: SessionArgument,
    handle: HandleArgument,
    why: Annotated[str, typer.Option(help="Who asked, or which rule; it stays in the log.")] = "",
    yes: YesOption = False,
    store: StoreOption = UNSAID,
) -> None:
    """Destroy a text in the store, with every summary, snapshot and answer made from it.

    It leaves waiting messages and replies as well, and the lines that you have typed into chats.
    A server that runs on the same folder does it; a turn that runs there is begun again.
    """

    async def look(kept: Store, _: Doing) -> tuple[int, str, list[str]]:
        first = await named(kept, session, handle)
        wanted = parse_handle(handle)
        events = messages(kept, session, wanted.first, wanted.last)
        said = [one.body.message async for one in events if isinstance(one.body, Said | Repair)]
        parts = first.parts if wanted.part is None else first.parts[wanted.part :][:1]
        typed = [one.text for one in said if one.role == "user"]
        return len(said), " ".join(part_text(part) for part in parts), typed

    async def destroy(kept: Store, _: Doing) -> tuple[Sequence[str], Sequence[str]]:
        from trimtab.worker import desk

        return await desk.erase(store, kept, session, handle, why=why)

    count, text, typed = work(store, f"reading {session}", look)
    what = handle if count == 1 else f"{handle} ({counted(count, 'message')})"
    if not yes:
        _say(f"{what}: {brief(text, 200)}")
        typer.confirm(f"Erase it from {session}? It cannot be brought back", abort=True, err=True)
    gone, forks = work(store, f"erasing {handle} from {session}", destroy)
    _forget_typed(typed)
    others = len(gone) - count
    _say(
        f"erased {what}"
        + (f" and {counted(others, 'later answer')} that may repeat it" if others > 0 else "")
        + "; past calls that sent it can no longer be shown"
    )
    if forks:
        _say(
            f"not reached: {counted(len(forks), 'fork')} with copies of their own "
            f"({listed(forks)}); erase it there too: "
            f"trimtab session erase {forks[0]} {handle}{here(store)}"
        )


def delete(session: SessionArgument, yes: YesOption = False, store: StoreOption = UNSAID) -> None:
    """Remove a session with everything that was made from it, and all that waits in it.

    What was typed in it leaves the lines that you have typed into chats. A server that runs on the
    same folder does it; a turn that runs there is broken off.
    """

    async def look(kept: Store, _: Doing) -> tuple[int, list[str], list[str]]:
        position = await known(kept, session)
        return position, await kept.forks(session), await said_by_users(kept, session)

    async def remove(kept: Store, _: Doing) -> None:
        from trimtab.worker import desk

        await desk.delete(store, kept, session)

    position, forks, typed = work(store, f"reading {session}", look)
    if not yes:
        typer.confirm(
            f"Delete {session} with its {counted(position, 'event')} from {where(store)}? It "
            "cannot be brought back",
            abort=True,
            err=True,
        )
    work(store, f"deleting {session}", remove)
    _forget_typed(typed)
    _say(f"deleted {session}: {counted(position, 'event')}")
    if forks:
        _say(f"{listed(forks)} stay: forks have copies of their own")


def _forget_typed(said: Collection[str]) -> None:
    with friendly():
        forget_typed(history_file(os.environ), said)


def _say(text: str) -> None:
    typer.echo(plain(text), err=True)


def _exists(session: str, position: int) -> ValueError:
    return ValueError(
        f"there is a session {session!r} with {position:,} events already; nothing was written: "
        "choose another id"
    )


def _promised(line: str) -> int:
    """How many lines an export says to have, for those who wait; it is checked elsewhere."""
    try:
        return int(json.loads(line)["events"]) + 2
    except (LookupError, TypeError, ValueError):
        return 0


@contextmanager
def _into(path: Path | None) -> Generator[TextIO]:
    """A file that is there as a whole or not at all, for its owner alone; without one, standard
    output."""
    if path is None:
        yield sys.stdout
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fd = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(fd, "w", encoding="ascii", newline="\n") as file:
            yield file
        new.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(path)) from error
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _from(path: Path) -> Generator[TextIO]:
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        file = path.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise OSError(error.errno, f"cannot be read ({error.strerror})", str(path)) from error
    with file:
        yield file
