"""Parse a log that is given as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from reprlib import repr as short
from typing import Any, cast

from trimtab.engine.log.event import Event, check_event_version, event_from_json
from trimtab.engine.log.field_types import check_field_types


def parse_event_log(log: Any) -> list[Event]:
    """Return the events of a log, which may be given as events or as lines."""
    if isinstance(log, str | bytes) or not isinstance(log, Iterable):
        how = (
            "; if you have one text, pass text.splitlines()" if isinstance(log, str | bytes) else ""
        )
        raise TypeError(f"the log is {short(log)}; pass the lines that dump() wrote{how}")
    lines = cast("Iterable[Any]", log)
    return [_parse_event_line(number, line) for number, line in enumerate(lines, 1)]


def _parse_event_line(number: int, line: Any) -> Event:
    if isinstance(line, Event):
        return line
    data: Any = None
    # What a damaged line does to its readers, no list of errors would have whole.
    with suppress(Exception):
        data = json.loads(line)
    if isinstance(data, dict) and {"kind", "version"} <= data.keys():
        check_event_version(cast("dict[str, Any]", data))  # of another version it says so
        with suppress(Exception):
            event = event_from_json(cast("dict[str, Any]", data))
            check_field_types(event)
            return event
    several = isinstance(line, str) and '}{"version":' in line
    raise ValueError(
        f"line {number} of the log is {short(line)}, which is not an event; pass lines that "
        f"dump() wrote{', one event a line' if several else ''}"
    )
