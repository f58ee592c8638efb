"""Logs of our own: one event a line, as `Context.dump` writes them.

`trimtab session export` writes the same between a first line and a last one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.core.event import VERSION as EVENTS
from trimtab.core.event import Event, Outcome, Said, Settings, Usage, event_from_json
from trimtab.core.message import Message
from trimtab.core.rewinding import in_force
from trimtab.options import options_of
from trimtab.replay.conversation import Conversation
from trimtab.replay.readers.lines import Line, Unreadable, name_of
from trimtab.session.portable import END, SESSION
from trimtab.session.portable import VERSION as EXPORT


def fits(line: Line) -> bool:
    return {"v", "seq", "at", "kind"} <= line.data.keys() or _exported(line)


def read(path: Path, lines: Iterator[Line]) -> Iterator[Conversation]:
    """What is in force at the log's end; repairs are left out, for they are made again."""
    found = list(lines)
    name = name_of(path)
    if _exported(found[0]):
        name, found = str(found[0].data.get("id") or name), _between(path, found)
    events = [_event(path, line) for line in found]
    settings = [event.body for event in events if isinstance(event.body, Settings)]
    if not settings:
        raise Unreadable(path, 1, "expected a settings event somewhere in the log")
    messages: list[Message] = []
    times: list[float] = []
    usage: dict[int, Usage] = {}
    reported = {
        event.body.call: event.body.usage
        for event in events
        if isinstance(event.body, Outcome) and event.body.usage is not None
    }
    for event in in_force(events, events[-1].seq):
        if not isinstance(event.body, Said):
            continue
        if event.body.call in reported:
            usage[len(messages)] = reported.pop(event.body.call)
        messages.append(event.body.message)
        times.append(event.at)
    last = options_of(settings[-1])
    yield Conversation(
        id=name,
        source=str(path),
        messages=tuple(messages),
        system=settings[-1].system,
        tools=(*last.tools, *last.selected),
        times=tuple(times),
        usage=usage or None,
        model=last.model,
        window=last.context_window or settings[-1].entry.get("context_window"),
    )


def _exported(line: Line) -> bool:
    return line.data.get("trimtab") == SESSION


def _between(path: Path, lines: list[Line]) -> list[Line]:
    """The events of an export, which must be whole."""
    head, body, end = lines[0], lines[1:-1], lines[-1]
    version, count = head.data.get("v"), head.data.get("events")
    if version != EXPORT:
        raise Unreadable(path, head.number, _newer("export", version, EXPORT))
    if end.data.get("trimtab") != END or len(body) != count:
        raise Unreadable(
            path,
            end.number,
            f"expected an export of {count} events and an end; export the session again",
        )
    return body


def _event(path: Path, line: Line) -> Event:
    version = line.data.get("v")
    if isinstance(version, int) and version > EVENTS:
        raise Unreadable(path, line.number, _newer("event", version, EVENTS))
    try:
        return event_from_json(line.data)
    except (LookupError, TypeError, ValueError) as error:
        raise Unreadable(path, line.number, "expected an event of a log") from error


def _newer(what: str, version: object, newest: int) -> str:
    return (
        f"this {what} has format version {version} and this release reads up to {newest}: upgrade "
        "trimtab to replay it"
    )
