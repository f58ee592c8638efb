"""Export a session to one file and import it: lines of JSON, imported as a whole or not at all.

The first line says what the file is. The last line has the number of events and their SHA-256, so
that a truncated or changed file is noticed. `sed '1d;$d' FILE | sha256sum` gives the same sum.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from trimtab.engine.log.event import (
    Event,
    MessageAdded,
    ToolResultRepair,
    event_from_json,
    event_to_json,
)
from trimtab.engine.log.message import extract_text_or_arguments
from trimtab.engine.window.window import Window
from trimtab.errors import (
    ExportChecksumError,
    ImportTargetExistsError,
    NewerExportError,
    NewerLogError,
    NotAnExportError,
    PositionTaken,
    SessionNotFound,
    TruncatedExportError,
)
from trimtab.stores.base import Store
from trimtab.stores.redacted_export import EventRedactor

MAX_EVENT_TIME_S = 253_402_300_799
"""The last second of the year 9999. No later time can be shown."""
EXPORT_VERSION = 1
"""Version of the file format. Each event carries its own format version. It stays 1 until the first
release."""
HEADER_KIND = "session"
FOOTER_KIND = "end"
REDACTED_ID = "redacted"
"""The id of an export without texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What was imported."""

    session_id: str
    """The id of the imported session."""
    exported_id: str
    """The id that the session had when it was exported."""
    events: int
    """Number of events that were written."""


async def export_session(
    store: Store, session_id: str, *, redact: bool = False
) -> AsyncIterator[str]:
    """Yield a session as lines without line ends.

    Events that are appended during the export are not included.

    Args:
        store: The store to read from.
        session_id: The session.
        redact: Replace every text by a filler of the same length, and every id by a number. Names
            of models and tools, parameters of tools, sizes, times and the kinds of events stay.

    Raises:
        SessionNotFound: There is no such session, or it was deleted during the export.
    """
    count = await store.position(session_id)
    if not count:
        raise SessionNotFound(session_id)
    name = REDACTED_ID if redact else session_id
    redactor = EventRedactor() if redact else None
    yield _to_json_line(
        {"trimtab": HEADER_KIND, "version": EXPORT_VERSION, "id": name, "events": count}
    )
    checksum = sha256()
    event_count = 0
    async for event in store.events(session_id, [(1, count)]):
        event_json = event_to_json(event)
        line = _to_json_line(redactor.redact(event_json) if redactor else event_json)
        checksum.update(line.encode() + b"\n")
        event_count += 1
        yield line
    if event_count != count:
        # Without a last line, so that `import` refuses the lines written so far.
        raise SessionNotFound(session_id)
    yield _to_json_line({"trimtab": FOOTER_KIND, "events": count, "sha256": checksum.hexdigest()})


async def import_session(
    store: Store, session_id: str | None, lines: Iterable[str] | AsyncIterable[str]
) -> ImportResult:
    """Import an exported session into a store, as a whole or not at all.

    Args:
        store: The store to write to.
        session_id: The id of the new session; None keeps the exported id.
        lines: The lines of the export.

    Raises:
        SessionImportError: The lines are not a valid export, or the session exists. Nothing was
            written.
    """
    export_lines = [line.rstrip("\r\n") async for line in _iter_lines(lines)]
    while export_lines and not export_lines[-1]:
        export_lines.pop()
    header = _parse_header(export_lines[0] if export_lines else "")
    name = session_id if session_id is not None else header["id"]
    if position := await store.position(name):
        raise _target_exists_error(name, position)
    events = _verify_events(export_lines, header["events"])
    try:
        await store.append(name, events)
    except PositionTaken as refusal:
        raise _target_exists_error(name, refusal.position) from refusal
    return ImportResult(session_id=name, exported_id=header["id"], events=len(events))


def _parse_header(line: str) -> dict[str, Any]:
    header = _parse_object(line)
    if header.get("trimtab") != HEADER_KIND:
        raise NotAnExportError(
            "this is not an exported session: its first line is not the one that `trimtab "
            "session export` writes"
        )
    version = header.get("version")
    count = header.get("events")
    name = header.get("id")
    if isinstance(version, int) and version > EXPORT_VERSION:
        raise NewerExportError(
            f"this export has format version {version} and this release reads up to "
            f"{EXPORT_VERSION}: "
            "upgrade trimtab to import it"
        )
    has_count = isinstance(count, int) and count > 0
    if version != EXPORT_VERSION or not has_count or not isinstance(name, str):
        raise NotAnExportError(
            "the first line of this export has no version, no id or no number of events"
        )
    return header


def _verify_events(lines: list[str], count: int) -> list[Event]:
    """Return the events between the first and the last line if they are unchanged."""
    end = _parse_object(lines[-1])
    body = lines[1:-1]
    if end.get("trimtab") != FOOTER_KIND:
        raise TruncatedExportError(
            f"this export is truncated: it should have {count:,} events and a last line, "
            f"but it ends after {len(lines) - 1:,} lines of events; export the session again"
        )
    if len(body) != count or end.get("events") != count:
        raise TruncatedExportError(
            f"this export has {len(body):,} of its {count:,} events; export the session again"
        )
    checksum = sha256()
    for line in body:
        checksum.update(line.encode("utf-8", "surrogatepass") + b"\n")
    if checksum.hexdigest() != end.get("sha256"):
        raise ExportChecksumError(
            f"the {count:,} events of this export have the SHA-256 "
            f"{checksum.hexdigest()[:12]}…, but {str(end.get('sha256'))[:12]}… was exported: "
            "the file was changed; export the session again"
        )
    return _parse_events(body)


def _parse_events(body: Sequence[str]) -> list[Event]:
    events: list[Event] = []
    for number, line in enumerate(body, 1):
        data = _parse_object(line)
        try:
            event = event_from_json(data)
            _require_readable(event)
        except NewerLogError as error:
            raise NewerExportError(str(error)) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise NotAnExportError(f"line {number + 1} of this export is not an event") from error
        if event.seq != number:
            raise NotAnExportError(
                f"event {event.seq} of this export is out of order: event {number} is expected here"
            )
        events.append(event)
    _require_foldable(events)
    return events


def _require_readable(event: Event) -> None:
    """Raise `ValueError` if a time or a text of an event is none."""
    at: Any = event.at
    if type(at) not in (int, float) or not 0 <= at <= MAX_EVENT_TIME_S:
        raise ValueError("its time is not a number of seconds since 1970")
    if isinstance(event.body, MessageAdded | ToolResultRepair):
        message = event.body.message
        texts: list[Any] = [message.role, *map(extract_text_or_arguments, message.parts)]
        texts += [name for call in message.calls for name in (call.id, call.name)]
        texts += [result.call_id for result in message.results]
        if not all(text is None or isinstance(text, str) for text in texts):
            raise ValueError("a text of its message is none")


def _require_foldable(events: Sequence[Event]) -> None:
    """Raise an error if the events are no history of a session. Otherwise each command that reads
    the session would fail later."""
    try:
        Window().apply(*events)
    except Exception as error:
        raise NotAnExportError(
            "the events of this export do not belong together, so no session can be made of them: "
            f"{type(error).__name__}"
        ) from error


def _target_exists_error(session_id: str, position: int) -> ImportTargetExistsError:
    return ImportTargetExistsError(
        f"session {session_id!r} already exists with {position:,} events; nothing was "
        "imported: choose another id, or delete that session first"
    )


def _to_json_line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _parse_object(line: str) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    try:
        value = json.loads(line)
    except (RecursionError, ValueError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


async def _iter_lines(lines: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line
