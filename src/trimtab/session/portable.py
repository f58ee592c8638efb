"""A session as one file: lines of JSON that another store takes whole or not at all.

The first line says what it is, the last how many events stand between and their SHA-256, so that a
file that was cut off or changed is noticed. `sed '1d;$d' FILE | sha256sum` gives the same sum.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from trimtab.core.event import VERSION as EVENTS
from trimtab.core.event import Event, dump, event_from_json
from trimtab.stores.errors import NoSession, PositionTaken
from trimtab.stores.store import Store

VERSION = 1
"""Of the file's shape; that of the events is in each of them."""
SESSION = "session"
END = "end"


class ImportRefused(ValueError):
    """Any of the below; nothing was written."""


class NotAnExport(ImportRefused):
    """The file is not what `export` writes."""


class NewerExport(ImportRefused):
    """A later release wrote it."""


class CutOff(ImportRefused):
    """The end of the file is missing."""


class ChecksumWrong(ImportRefused):
    """The events are not those that were exported."""


class SessionExists(ImportRefused):
    """The store has a session of that id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    session: str
    """The id that it has now."""
    exported: str
    """The id that it had."""
    events: int
    """How many were written."""


async def export(store: Store, session: str) -> AsyncIterator[str]:
    """A session as lines, without their ends. What is appended meanwhile is not in it."""
    count = await store.position(session)
    if not count:
        raise NoSession(session)
    yield _line({"trimtab": SESSION, "v": VERSION, "id": session, "events": count})
    summed, seen = sha256(), 0
    async for event in store.events(session, [(1, count)]):
        line = dump(event)
        summed.update(line.encode() + b"\n")
        seen += 1
        yield line
    if seen != count:
        # Without an end: whoever has taken the lines so far has a file that is refused.
        raise NoSession(session)
    yield _line({"trimtab": END, "events": count, "sha256": summed.hexdigest()})


async def import_session(
    store: Store, session: str | None, lines: Iterable[str] | AsyncIterable[str]
) -> Imported:
    """Put an exported session into a store, whole or not at all; None keeps the id it had."""
    found = [line.rstrip("\r\n") async for line in _each(lines)]
    while found and not found[-1]:
        found.pop()
    header = _header(found[0] if found else "")
    name = session if session is not None else header["id"]
    if position := await store.position(name):
        raise _exists(name, position)
    events = _checked(found, header["events"])
    try:
        await store.append(name, events)
    except PositionTaken as taken:
        raise _exists(name, taken.position) from taken
    return Imported(session=name, exported=header["id"], events=len(events))


def _header(line: str) -> dict[str, Any]:
    header = _parsed(line)
    if header.get("trimtab") != SESSION:
        raise NotAnExport(
            "this is no exported session: its first line is not the one that `trimtab session "
            "export` writes"
        )
    version, count, name = header.get("v"), header.get("events"), header.get("id")
    if isinstance(version, int) and version > VERSION:
        raise NewerExport(
            f"this export has format version {version} and this release reads up to {VERSION}: "
            "upgrade trimtab to import it"
        )
    counted = isinstance(count, int) and count > 0
    if version != VERSION or not counted or not isinstance(name, str):
        raise NotAnExport(
            "the first line of this export lacks its version, its id or its number of events"
        )
    return header


def _checked(lines: list[str], count: int) -> list[Event]:
    """The events between the first line and the last, if they are those that were exported."""
    end, body = _parsed(lines[-1]), lines[1:-1]
    if end.get("trimtab") != END:
        raise CutOff(
            f"this export is cut off: it should hold {count:,} events and an end, and ends after "
            f"{len(lines) - 1:,} lines of them; export the session again"
        )
    if len(body) != count or end.get("events") != count:
        raise CutOff(
            f"this export holds {len(body):,} of its {count:,} events; export the session again"
        )
    summed = sha256()
    for line in body:
        summed.update(line.encode("utf-8", "surrogatepass") + b"\n")
    if summed.hexdigest() != end.get("sha256"):
        raise ChecksumWrong(
            f"the {count:,} events of this export have the SHA-256 {summed.hexdigest()[:12]}… and "
            f"not {str(end.get('sha256'))[:12]}… as exported: the file was changed; export the "
            "session again"
        )
    return _events(body)


def _events(body: Sequence[str]) -> list[Event]:
    events: list[Event] = []
    for number, line in enumerate(body, 1):
        data = _parsed(line)
        if isinstance(data.get("v"), int) and data["v"] > EVENTS:
            raise NewerExport(
                f"event {number} of this export has format version {data['v']} and this release "
                f"reads up to {EVENTS}: upgrade trimtab to import it"
            )
        try:
            event = event_from_json(data)
        except (LookupError, TypeError, ValueError) as error:
            raise NotAnExport(f"line {number + 1} of this export is no event") from error
        if event.seq != number:
            raise NotAnExport(f"event {event.seq} of this export stands where {number} belongs")
        events.append(event)
    return events


def _exists(session: str, position: int) -> SessionExists:
    return SessionExists(
        f"there is a session {session!r} with {position:,} events already; nothing was imported: "
        "choose another id, or delete that session first"
    )


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _parsed(line: str) -> dict[str, Any]:
    """An object, or an empty one for anything else."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


async def _each(lines: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line
