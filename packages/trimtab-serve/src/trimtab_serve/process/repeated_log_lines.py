"""Write only a few copies a minute of a repeated log line, and count the rest.

A failing disk or database, or a client without a key, must not fill the disk with log lines.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

from trimtab_serve.metrics.recording import count_suppressed_log_line
from trimtab_serve.queue.bounded_dict import BoundedDict

MAX_LINES_PER_MINUTE = 5
"""Lines of one kind to write in a minute."""
MAX_LINE_KINDS = 1_000
"""Kinds of lines to remember."""
LIMITED_AT_EVERY_LEVEL = frozenset({"trimtab.http.anonymous"})
"""Loggers for events that anybody can cause. For all other loggers, only lines from WARNING up are
limited: lower levels report work that was done, with one line each."""
_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+")
_WINDOW_S = 60.0


class RepeatedLineFilter(logging.Filter):
    """Passes a few lines of each kind a minute. The first line after that says how many were left
    out. A kind is a logger, a level, a text without its values, and a session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: BoundedDict[tuple[Any, ...], tuple[float, int]] = BoundedDict(MAX_LINE_KINDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line."""
        if record.levelno < logging.WARNING and record.name not in LIMITED_AT_EVERY_LEVEL:
            return True
        if record.name in LIMITED_AT_EVERY_LEVEL:
            text = record.getMessage()  # a method, a route and a status: there are not many
        else:
            text = _VARIABLE.sub("#", str(record.msg))
        kind = (record.name, record.levelno, text, getattr(record, "session", None))
        now = self._clock()
        window_start, count = self._windows.get(kind, (now, 0))
        if now - window_start >= _WINDOW_S:
            left_out = max(0, count - MAX_LINES_PER_MINUTE)
            window_start = now
            count = 0
            if left_out:
                record.msg = f"{record.getMessage()} ({left_out:,} more of these were left out)"
                record.args = ()
                record.suppressed = left_out
        self._windows[kind] = (window_start, count + 1)
        if count < MAX_LINES_PER_MINUTE:
            return True
        count_suppressed_log_line(record.name)
        return False
