"""`trimtab inspect`: one page of a session, or a list of sessions with a page for each."""

from __future__ import annotations

import asyncio
import os
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.session.changes import open_output
from trimtab.cli.store_command import (
    UNSET_STORE,
    ProgressStatus,
    StoreOption,
    report_known_errors,
    require_session_position,
    show_progress_if_slow,
)
from trimtab.cli.text_format import escape_control_characters, format_count
from trimtab.inspect.index_page import IndexedSession, index_session, render_index
from trimtab.inspect.page import render_page
from trimtab.inspect.sources import (
    find_agent_logs,
    find_store_and_session,
    list_newest_files,
    list_newest_sessions,
    read_file_timelines,
    read_store_timelines,
    read_stored_timeline,
)
from trimtab.inspect.timeline import Timeline
from trimtab.replay.readers.json_files import UnreadableRecording
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files.disk import resolve_folder

DEFAULT_SESSIONS = 200
"""Pages that the command writes for a folder."""


def inspect_command(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="A session's id; a log of Claude Code, Codex, opencode, pi or Trimtab; or a "
            "folder of either. Default: the newest session of the store, or of these agents.",
        ),
    ] = None,
    store: StoreOption = UNSET_STORE,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Write the page to this file, or the pages of a folder to this folder, and do not "
            "open a browser.",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Leave out every text. Names of tools and models, and sizes stay."
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, help="Number of sessions of a folder, the newest first.")
    ] = DEFAULT_SESSIONS,
) -> None:
    """Show in a browser what the model saw in each call, what was hidden, and what it cost.

    The page is one file with all its data. It works without a network and sends nothing anywhere.
    It contains the whole conversation, so only its owner can read the file.
    """
    path = _find_path(session)
    with report_known_errors(), show_progress_if_slow("reading the session") as progress:
        page = asyncio.run(
            _write_pages(
                session, path, store, html, redacted=redact, limit=limit, progress=progress
            )
        )
    if html is None:
        webbrowser.open(page.resolve().as_uri())
    typer.echo(escape_control_characters(str(page)))


def _find_path(session: str | None) -> Path | None:
    """Return the file or the folder that the user named. None if it is none."""
    path = Path(session).expanduser() if session is not None else None
    return path if path is not None and path.exists() else None


async def _write_pages(
    session: str | None,
    path: Path | None,
    store_location: str,
    html: Path | None,
    *,
    redacted: bool,
    limit: int,
    progress: ProgressStatus,
) -> Path:
    if path is not None and not await _is_stored(store_location, session or ""):
        place = find_store_and_session(path)
        if place is not None:
            async with await open_store(str(place[0]), allow_new_folder=False) as store:
                if place[1] is not None:
                    timeline = await read_stored_timeline(store, place[1], redacted=redacted)
                    return _write_page(timeline, html)
                timelines = read_store_timelines(store, limit=limit, redacted=redacted)
                return await _write_folder(str(path), timelines, html, progress)
        return await _write_logs(path, html, redacted=redacted, limit=limit, progress=progress)
    if session is None and not _has_store(store_location):
        return await _write_newest_log(html, redacted=redacted)
    async with await open_store(store_location, allow_new_folder=False) as store:
        if session is None:
            newest = await list_newest_sessions(store, 1)
            if not newest:
                return await _write_newest_log(html, redacted=redacted)
            session = newest[0].session
        await require_session_position(store, session)
        timeline = await read_stored_timeline(store, session, redacted=redacted)
        return _write_page(timeline, html)


async def _is_stored(location: str, session: str) -> bool:
    """Whether the store has a session of this name, which may also be the name of a file."""
    if not _has_store(location):
        return False
    async with await open_store(location, allow_new_folder=False) as store:
        return bool(await store.position(session))


def _has_store(location: str) -> bool:
    return is_database_address(location) or resolve_folder(location).is_dir()


async def _write_newest_log(html: Path | None, *, redacted: bool) -> Path:
    """Write the page of the newest log of an agent on this machine."""
    for file in list_newest_files(find_agent_logs(Path.home(), os.environ)):
        timelines = list(_read_log(file, redacted=redacted))
        if timelines:
            return _write_page(max(timelines, key=_find_last_time), html)
    raise LookupError(
        "no sessions found: there is no ./sessions here, and no log of Claude Code, Codex, "
        "opencode or pi; name a session, a file or a folder"
    )


async def _write_logs(
    path: Path, html: Path | None, *, redacted: bool, limit: int, progress: ProgressStatus
) -> Path:
    """Write what a file or a folder with logs holds: one page, or a list."""
    files = list_newest_files([path])
    if files == [path]:
        skipped: list[UnreadableRecording] = []
        readable = read_file_timelines(path, skipped.append, redacted=redacted)
        timelines = list(islice(readable, limit))
        if skipped and not timelines:
            raise skipped[0]
        if len(timelines) == 1:
            for error in skipped:
                _print_skipped(error)
            return _write_page(timelines[0], html)

    async def read() -> AsyncIterator[Timeline]:
        count = 0
        for file in files:
            for timeline in _read_log(file, redacted=redacted):
                if count == limit:
                    return
                count += 1
                yield timeline

    return await _write_folder(str(path), read(), html, progress)


def _read_log(file: Path, *, redacted: bool) -> Iterator[Timeline]:
    return read_file_timelines(file, _print_skipped, redacted=redacted)


def _print_skipped(error: UnreadableRecording) -> None:
    typer.echo(escape_control_characters(f"skipped: {error}"), err=True)


def _find_last_time(timeline: Timeline) -> float:
    return max((call.at or 0.0 for call in timeline.calls), default=0.0)


async def _write_folder(
    origin: str, timelines: AsyncIterator[Timeline], html: Path | None, progress: ProgressStatus
) -> Path:
    """Write a page for each session, and the list of them. Return the path of the list."""
    folder = html or Path(tempfile.mkdtemp(prefix="trimtab-inspect-"))
    sessions: list[IndexedSession] = []
    async for timeline in timelines:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"session-{len(sessions) + 1:04}.html"
        _write_file(folder / name, render_page(timeline))
        sessions.append(index_session(name, timeline))
        progress.show_text(f"wrote {format_count(len(sessions), 'page')}")
    if not sessions:
        raise LookupError(
            f"{origin} contains no sessions; name a folder of sessions, or of logs of Claude Code, "
            "Codex, opencode or pi"
        )
    index = folder / "index.html"
    _write_file(index, render_index(origin, sessions))
    return index


def _write_page(timeline: Timeline, html: Path | None) -> Path:
    path = html or Path(tempfile.mkdtemp(prefix="trimtab-inspect-")) / "session.html"
    _write_file(path, render_page(timeline))
    return path


def _write_file(path: Path, text: str) -> None:
    with open_output(path) as file:
        file.write(text)
