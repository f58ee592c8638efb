"""Log lines as text or as JSON objects. They contain no message texts and no secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from trimtab.cli.text_format import escape_control_characters
from trimtab.errors import StoreError, store_error_listeners
from trimtab.observe.request_ids import RequestIdLogFilter
from trimtab_serve.agent.environment import ENVIRON
from trimtab_serve.agent.secret_values import MaskSecrets, build_secret_mask
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


REPEAT_AFTER_S = 60.0
"""Seconds after which an error of the same kind is logged again."""

log = logging.getLogger("trimtab.serve")


@contextmanager
def log_store_errors() -> Generator[None]:
    """Log errors of the store while the block runs."""
    last: dict[str, float] = {}

    def listen(error: StoreError) -> None:
        kind = type(error).__name__
        now = time.monotonic()
        if now - last.get(kind, -REPEAT_AFTER_S) >= REPEAT_AFTER_S:
            last[kind] = now
            log.error("the store failed: %s", error, extra={"event": "store_failed"})

    store_error_listeners.append(listen)
    try:
        yield
    finally:
        store_error_listeners.remove(listen)


_STANDARD_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
"""Fields of every record. All other fields are extras of the code that logs."""
QUIET_LOGGERS = (
    "httpx",
    "httpx2",
    "httpcore",
    "telegram",
    "discord",
    "procrastinate",
    "apscheduler",
)
"""Libraries whose routine lines do not help an operator. Some log URLs that contain tokens."""


class JsonLogFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with its extras as fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD_RECORD_FIELDS
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = record.exc_info[0].__name__
            # The lines of code alone: the error's text may repeat what a user wrote.
            fields["traceback"] = "".join(traceback.format_tb(record.exc_info[2]))
        return json.dumps(fields, default=str)


class TextLogFormatter(logging.Formatter):
    """Formats a record for people: time, level above INFO, message and session.

    Parts of a message may come from outside. Codes that a terminal would obey are made visible, and
    further lines are indented, so that none looks like a line of the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone()
        level = "" if record.levelno <= logging.INFO else f"{record.levelname} "
        session: Any = getattr(record, "session", "")
        where = f" [{session}]" if session else ""
        request_id: Any = getattr(record, "request_id", "")
        request_note = f" (request {request_id})" if request_id else ""
        message = f"{record.getMessage()}{where}{request_note}"
        lines = "\n  ".join(escape_control_characters(line) for line in message.splitlines())
        text = f"{at:%H:%M:%S} {level}{lines}"
        if record.exc_info and record.exc_info[0] is not None:
            trace = "".join(traceback.format_tb(record.exc_info[2]))
            text = f"{text}\n{trace}{record.exc_info[0].__name__}"
        return text


class SecretLogFilter(logging.Filter):
    """Masks the secrets of this process in messages and in their extras."""

    def __init__(self, mask: MaskSecrets) -> None:
        super().__init__()
        self._mask = mask

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (safe_message := self._mask(message)) != message:
            record.msg = safe_message
            record.args = ()
        for name, value in vars(record).items():
            if name not in _STANDARD_RECORD_FIELDS and isinstance(value, str):
                setattr(record, name, self._mask(value))
        return True


def configure_logging(*, as_json: bool) -> None:
    """Send all log lines to standard error in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if as_json else TextLogFormatter())
    handler.addFilter(RequestIdLogFilter())
    handler.addFilter(RepeatedLineFilter())
    handler.addFilter(SecretLogFilter(build_secret_mask(ENVIRON)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns of each attempt to reconnect; that the database is away is said once, at ERROR.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        log = logging.getLogger(name)
        log.handlers[:] = []
        log.propagate = True
        log.setLevel(logging.WARNING)
