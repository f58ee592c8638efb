"""Find sessions: in a store, in a file, in a folder, or where agents keep their logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from trimtab.engine.log.event import Event
from trimtab.engine.log.field_types import check_field_types
from trimtab.inspect.recorded_timeline import read_recorded_timeline
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.inspect.timeline import Timeline
from trimtab.replay.locations import list_client_logs, list_recording_files
from trimtab.replay.readers import read_recordings
from trimtab.replay.readers.json_files import (
    READ_ERRORS,
    LogFile,
    OnSkipped,
    UnreadableRecording,
)
from trimtab.replay.readers.trimtab_logs import is_trimtab_log_line, read_trimtab_events
from trimtab.replay.selection import RecordedConversation
from trimtab.session.loading import explain_damage
from trimtab.stores.base import SessionListEntry, Store
from trimtab.stores.files.disk import folder_name_to_session
from trimtab.stores.files.log_file import LOG_FILE

LISTING_PAGE = 1_000
"""Sessions of a store that are listed at a time."""


def find_store_and_session(path: Path) -> tuple[Path, str | None] | None:
    """Return the store that a path is in, and the session if it names one. None if it is not in a
    store of files."""
    folder = path.parent if path.name == LOG_FILE else path
    if (folder / LOG_FILE).is_file():
        return folder.parent, folder_name_to_session(folder.name)
    if path.is_dir() and any(path.glob(f"*/{LOG_FILE}")):
        return path, None
    return None


async def list_newest_sessions(store: Store, limit: int) -> list[SessionListEntry]:
    """Return the sessions of a store, the last active ones first."""
    entries: list[SessionListEntry] = []
    after = ""
    while page := await store.sessions(after=after, limit=LISTING_PAGE):
        entries += page
        after = page[-1].session
    return sorted(entries, key=lambda entry: entry.active, reverse=True)[:limit]


async def read_stored_timeline(store: Store, session: str, *, redacted: bool) -> Timeline:
    """Return the timeline of a stored session."""
    events: list[Event] = [event async for event in store.events(session)]
    with explain_damage(session):
        for event in events:
            check_field_types(event)
        title = "A session" if redacted else session
        return read_session_timeline(title, events, redacted=redacted)


async def read_store_timelines(
    store: Store, *, limit: int, redacted: bool
) -> AsyncIterator[Timeline]:
    """Yield the timelines of a store's newest sessions."""
    for entry in await list_newest_sessions(store, limit):
        yield await read_stored_timeline(store, entry.session, redacted=redacted)


def list_newest_files(paths: list[Path]) -> list[Path]:
    """Return the files that may be logs, the last changed ones first."""
    files = [file for path in paths for file in list_recording_files(path)]
    return sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)


def find_agent_logs(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the folders in which agents keep their logs, if they exist."""
    clients = list_client_logs(home, environment)
    return [client.path for client in clients if client.path.exists()]


def read_file_timelines(path: Path, on_skipped: OnSkipped, *, redacted: bool) -> Iterator[Timeline]:
    """Yield the timeline of each session in a file. Unreadable lines go to `on_skipped`."""
    if _is_own_log(path):
        try:
            # A log of ours that grows is in a store, which is read as such.
            lines = list(LogFile(path).iter_lines(may_be_growing=False))
            name, events = read_trimtab_events(path, lines)
            title = "A session" if redacted else name
            timeline = read_session_timeline(title, events, redacted=redacted)
        except UnreadableRecording as error:
            on_skipped(error)
        except READ_ERRORS as error:
            on_skipped(UnreadableRecording(path, 1, f"expected a log that can be read: {error}"))
        else:
            yield timeline
        return
    parts_by_session: dict[str, list[RecordedConversation]] = {}
    for conversation in read_recordings(path, on_skipped):
        parts_by_session.setdefault(conversation.session, []).append(conversation)
    for parts in parts_by_session.values():
        if sum(part.calls for part in parts):
            yield read_recorded_timeline(parts, redacted=redacted)


def _is_own_log(path: Path) -> bool:
    """Whether a file is a log or an export of Trimtab."""
    try:
        line = next(LogFile(path).iter_lines(), None)
    except READ_ERRORS:
        return False
    return line is not None and is_trimtab_log_line(line)
