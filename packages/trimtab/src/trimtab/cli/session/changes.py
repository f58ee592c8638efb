"""The commands that export, import, copy, erase or delete sessions."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from trimtab.cli.extension import find_extension
from trimtab.cli.session.explanation import iterate_message_events, require_first_message_of_handle
from trimtab.cli.store_command import (
    UNSET_STORE,
    HandleArgument,
    ProgressStatus,
    SessionArgument,
    StoreOption,
    YesOption,
    describe_store,
    format_store_option,
    report_known_errors,
    require_session_position,
    run_on_store,
)
from trimtab.cli.text_format import (
    escape_control_characters,
    format_count,
    join_names,
    shorten_to_line,
)
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import ErasurePlanner
from trimtab.engine.log.event import MessageAdded, ToolResultRepair
from trimtab.engine.recall.tools import part_to_text
from trimtab.errors import SessionExists
from trimtab.session.session import fork_stored_session, open_session_to_erase
from trimtab.stores import export
from trimtab.stores.base import Store
from trimtab.stores.files.disk import open_private_file

SERVED_SESSION_ID = re.compile(r"[^/]+/[^/]+/[^/]+")
"""The id of a session that a server may have: tenant, agent, name."""
PROGRESS_INTERVAL_LINES = 1_000
"""Events between two progress updates."""


def export_session_command(
    session: SessionArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to this file. Default: standard output."),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Replace every text and id, for a report. Names of tools and models, sizes and "
            "times stay.",
        ),
    ] = False,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Write a session to one file, which `import` can read into any store."""

    async def write(kept: Store, told: ProgressStatus) -> int:
        total = await require_session_position(kept, session) + 2
        lines = 0
        with open_output(output) as file:
            async for line in export.export_session(kept, session, redact=redact):
                file.write(f"{line}\n")
                lines += 1
                if lines % PROGRESS_INTERVAL_LINES == 0:
                    told.show_count(lines, total, "lines")
        return lines - 2

    count = run_on_store(store, f"exporting {session}", write)
    if output is not None:
        _print_note(f"exported {format_count(count, 'event')} of {session} to {output}")


def import_session_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported session, - for stdin.")],
    name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="ID", help="The id of the new session. Default: the exported id."
        ),
    ] = None,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Import an exported session into a store: all of it, or nothing if the file is incomplete."""

    async def lines(told: ProgressStatus) -> AsyncIterator[str]:
        with _open_input(file) as source:
            total = 0
            for number, line in enumerate(source, 1):
                if number == 1:
                    total = _announced_line_count(line)
                if number % PROGRESS_INTERVAL_LINES == 0:
                    told.show_count(number, total, "lines")
                yield line

    copy = run_on_store(
        store,
        f"importing {file}",
        lambda kept, status: export.import_session(kept, name, lines(status)),
        allow_new_folder=True,
    )
    was = "" if copy.session_id == copy.exported_id else f", which was {copy.exported_id},"
    _print_note(
        f"imported {format_count(copy.events, 'event')} as session {copy.session_id}{was} into "
        f"{describe_store(store)}; to see it: trimtab session show "
        f"{shlex.quote(copy.session_id)}{format_store_option(store)}"
    )


def fork_session_command(
    session: SessionArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the copy.")],
    at: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Copy up to this event. Default: all events."),
    ] = None,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Create a session that shares the history of another up to a position."""

    async def copy(kept: Store, _: ProgressStatus) -> tuple[int, int]:
        position = await require_session_position(kept, session)
        if at is not None and at > position:
            raise ValueError(
                f"session {session!r} has {position:,} events, so it cannot be forked at event "
                f"{at:,}; use --at 1 to {position}"
            )
        try:
            await fork_stored_session(kept, session, new, at=at or position)
        except SessionExists as error:
            raise _session_exists_error(new, error.position) from error
        return at or position, position

    upto, position = run_on_store(store, f"forking {session}", copy)
    _print_note(
        f"forked {session} at event {upto:,} of {position:,} as {new}; to see it: "
        f"trimtab session show {shlex.quote(new)}{format_store_option(store)}"
    )


def erase_message_command(
    session: SessionArgument,
    handle: HandleArgument,
    reason: Annotated[
        str,
        typer.Option(help="The person or rule that asked for it. The log keeps this text."),
    ] = "",
    yes: YesOption = False,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Erase a text from the store, with every summary, snapshot and answer made from it."""

    async def look(kept: Store, _: ProgressStatus) -> tuple[int, str, list[str]]:
        first = await require_first_message_of_handle(kept, session, handle)
        target = parse_handle(handle)
        events = iterate_message_events(kept, session, target.first_seq, target.last_seq)
        messages = [
            one.body.message
            async for one in events
            if isinstance(one.body, MessageAdded | ToolResultRepair)
        ]
        parts = first.parts if target.part_index is None else first.parts[target.part_index :][:1]
        texts = [one.text for one in messages if one.role == "user"]
        return len(messages), " ".join(part_to_text(part) for part in parts), texts

    async def destroy(kept: Store, _: ProgressStatus) -> tuple[Sequence[str], Sequence[str]]:
        extension = find_extension()
        if extension is not None:
            return await extension.erase_everywhere(store, kept, session, handle, reason=reason)
        _refuse_served_session(session)
        planned_handles: list[str] = []

        async def note(planner: ErasurePlanner) -> None:
            planned_handles[:] = planner.handles

        open_session = await open_session_to_erase(kept, session)
        forks = await open_session.recorder.erase(
            handle, reason=reason, before_rewrite=note, fence_open_turn=True
        )
        return planned_handles, forks

    count, text, user_texts = run_on_store(store, f"reading {session}", look)
    what = handle if count == 1 else f"{handle} ({format_count(count, 'message')})"
    if not yes:
        _print_note(f"{what}: {shorten_to_line(text, 200)}")
        typer.confirm(f"Erase it from {session}? This cannot be undone", abort=True, err=True)
    handles, forks = run_on_store(store, f"erasing {handle} from {session}", destroy)
    _forget_typed_texts(user_texts)
    others = len(handles) - count
    _print_note(
        f"erased {what}"
        + (f" and {format_count(others, 'later answer')} that may repeat it" if others > 0 else "")
        + "; past calls that sent it can no longer be shown"
    )
    if forks:
        _print_note(
            f"not erased in {format_count(len(forks), 'fork')} ({join_names(forks)}), because "
            "forks keep their own copies; to erase it there as well: "
            f"trimtab session erase {shlex.quote(forks[0])} {handle}{format_store_option(store)}"
        )


def delete_session_command(
    session: SessionArgument, yes: YesOption = False, store: StoreOption = UNSET_STORE
) -> None:
    """Delete a session with its summaries, snapshots, waiting messages and schedules."""

    async def look(kept: Store, _: ProgressStatus) -> tuple[int, list[str], list[str]]:
        position = await require_session_position(kept, session)
        texts = [
            event.body.message.text
            async for event in kept.events(session)
            if isinstance(event.body, MessageAdded) and event.body.message.role == "user"
        ]
        return position, await kept.forks(session), texts

    async def remove(kept: Store, _: ProgressStatus) -> None:
        extension = find_extension()
        if extension is not None:
            await extension.delete_everywhere(store, kept, session)
            return
        _refuse_served_session(session)
        await kept.delete(session)

    position, forks, user_texts = run_on_store(store, f"reading {session}", look)
    if not yes:
        typer.confirm(
            f"Delete {session} with its {format_count(position, 'event')} from "
            f"{describe_store(store)}? This cannot be undone",
            abort=True,
            err=True,
        )
    run_on_store(store, f"deleting {session}", remove)
    _forget_typed_texts(user_texts)
    _print_note(f"deleted {session}: {format_count(position, 'event')}")
    if forks:
        _print_note(f"{join_names(forks)} stay: forks have their own copies")


def _refuse_served_session(session: str) -> None:
    """Without the server's code, waiting messages and schedules of a session would stay."""
    if SERVED_SESSION_ID.fullmatch(session):
        raise ValueError(
            f"session {session!r} may have waiting messages and schedules of a server, and "
            "trimtab-serve, which erases them, is not installed; nothing was erased: "
            "pip install 'trimtab[serve]'"
        )


def _forget_typed_texts(texts: Sequence[str]) -> None:
    extension = find_extension()
    if extension is not None:
        with report_known_errors():
            extension.forget_typed_texts(texts)


def _print_note(text: str) -> None:
    typer.echo(escape_control_characters(text), err=True)


def _session_exists_error(session: str, position: int) -> ValueError:
    return ValueError(
        f"session {session!r} already exists with {position:,} events; nothing was written: "
        "choose another id"
    )


def _announced_line_count(line: str) -> int:
    """Return the number of lines that an export announces, for the progress display."""
    try:
        return int(json.loads(line)["events"]) + 2
    except (LookupError, TypeError, ValueError):
        return 0


@contextmanager
def open_output(path: Path | None) -> Generator[TextIO]:
    """Open a private file that appears complete or not at all. Without a path, use standard
    output."""
    if path is None:
        yield sys.stdout
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fd = open_private_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(fd, "w", encoding="utf-8", newline="\n") as file:
            yield file
        new.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(path)) from error
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _open_input(path: Path) -> Generator[TextIO]:
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        file = path.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise OSError(error.errno, f"cannot be read ({error.strerror})", str(path)) from error
    with file:
        yield file
