"""Read Trimtab's own logs: one event per line, as `Context.dump` writes them.

`trimtab session export` writes the same lines between a header and a footer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.context import Context
from trimtab.engine.log.event import (
    CallOutcome,
    Event,
    MessageAdded,
    Settings,
    event_from_json,
)
from trimtab.engine.log.field_types import check_field_types
from trimtab.engine.log.message import Message
from trimtab.engine.log.rewind import select_events_in_force
from trimtab.errors import NewerLogError
from trimtab.options import options_from_settings
from trimtab.replay.readers.json_files import (
    JsonLine,
    LogFile,
    UnreadableRecording,
    derive_conversation_id,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation
from trimtab.stores.export import EXPORT_VERSION as EXPORT
from trimtab.stores.export import FOOTER_KIND, HEADER_KIND


def is_trimtab_log_line(line: JsonLine) -> bool:
    return {"version", "seq", "at", "kind"} <= line.data.keys() or _is_export_head(line)


TRIMTAB = "Trimtab"


def read_trimtab_log(file: LogFile, lines: Iterator[JsonLine]) -> Iterator[RecordedConversation]:
    """Read the messages that are valid at the end of the log. Repairs are left out: the replay
    makes them again."""
    path = file.path
    name, events = read_trimtab_events(path, list(lines))
    settings = [event.body for event in events if isinstance(event.body, Settings)]
    if not settings:
        raise UnreadableRecording(path, 1, "the log contains no settings event")
    messages: list[Message] = []
    times: list[float] = []
    recorded_calls: dict[int, RecordedCall] = {}
    last = options_from_settings(settings[-1])
    tools = (*last.tools, *last.turn_tools)
    window = last.context_window or settings[-1].entry.get("context_window")
    try:
        Context(last.model, tools=tools, context_window=window)
    except (TypeError, ValueError) as error:
        raise UnreadableRecording(path, 1, f"the log has invalid settings: {error}") from error
    usage_by_call = {
        event.body.call: event.body.usage
        for event in events
        if isinstance(event.body, CallOutcome) and event.body.usage is not None
    }
    for event in select_events_in_force(events, events[-1].seq):
        if not isinstance(event.body, MessageAdded):
            continue
        if event.body.call in usage_by_call:
            usage = usage_by_call.pop(event.body.call)
            recorded_calls[len(messages)] = RecordedCall(usage=usage, model=last.model)
        messages.append(event.body.message)
        times.append(event.at)
    yield RecordedConversation(
        id=name,
        kind=TRIMTAB,
        source=str(path),
        messages=tuple(messages),
        system=settings[-1].system,
        tools=tools,
        times=tuple(times),
        recorded=recorded_calls,
        model=last.model,
        window=window,
    )


def read_trimtab_events(path: Path, lines: list[JsonLine]) -> tuple[str, list[Event]]:
    """Return the name and the events of a log or an export. Raise `UnreadableRecording`."""
    name = derive_conversation_id(path)
    if _is_export_head(lines[0]):
        name, lines = str(lines[0].data.get("id") or name), _read_export_events(path, lines)
    events: list[Event] = []
    for line in lines:
        event = _parse_event(path, line)
        if events and event.seq <= events[-1].seq:
            raise UnreadableRecording(
                path, line.number, f"event {event.seq} cannot follow event {events[-1].seq}"
            )
        events.append(event)
    return name, events


def _is_export_head(line: JsonLine) -> bool:
    return line.data.get("trimtab") == HEADER_KIND


def _read_export_events(path: Path, lines: list[JsonLine]) -> list[JsonLine]:
    """Return the events of an export. Raise if the export is incomplete."""
    head, body, end = lines[0], lines[1:-1], lines[-1]
    version, count = head.data.get("version"), head.data.get("events")
    if version != EXPORT:
        raise UnreadableRecording(
            path,
            head.number,
            f"this export has format version {version}, but this release reads versions up to "
            f"{EXPORT}: upgrade trimtab to replay it",
        )
    if end.data.get("trimtab") != FOOTER_KIND or len(body) != count:
        raise UnreadableRecording(
            path,
            end.number,
            f"expected an export of {count} events with a footer; export the session again",
        )
    return body


def _parse_event(path: Path, line: JsonLine) -> Event:
    try:
        event = event_from_json(line.data)
        check_field_types(event)
    except NewerLogError as error:
        raise UnreadableRecording(path, line.number, str(error)) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnreadableRecording(path, line.number, "expected a log event") from error
    return event
