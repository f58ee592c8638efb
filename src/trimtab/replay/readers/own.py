"""Logs of our own: one event a line, as `Context.dump` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.core.event import Event, Outcome, Said, Settings, Usage, event_from_json
from trimtab.core.message import Message
from trimtab.core.rewinding import in_force
from trimtab.options import options_of
from trimtab.replay.conversation import Conversation
from trimtab.replay.readers.lines import Line, Unreadable, name_of


def fits(line: Line) -> bool:
    return {"v", "seq", "at", "kind"} <= line.data.keys()


def read(path: Path, lines: Iterator[Line]) -> Iterator[Conversation]:
    """What is in force at the log's end; repairs are left out, for they are made again."""
    events = [_event(path, line) for line in lines]
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
        id=name_of(path),
        source=str(path),
        messages=tuple(messages),
        system=settings[-1].system,
        tools=(*last.tools, *last.selected),
        times=tuple(times),
        usage=usage or None,
        model=last.model,
        window=last.context_window or settings[-1].entry.get("context_window"),
    )


def _event(path: Path, line: Line) -> Event:
    try:
        return event_from_json(line.data)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(path, line.number, f"expected an event of a log: {error!r}") from error
