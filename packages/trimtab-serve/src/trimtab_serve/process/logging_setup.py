"""Log lines as text or as JSON objects. They contain no message texts and no secrets."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from trimtab.cli.text_format import escape_control_characters
from trimtab.observe.request_ids import RequestIdLogFilter
from trimtab_serve.agent.environment import ENVIRON
from trimtab_serve.agent.secret_values import MaskSecrets, build_secret_mask
from trimtab_serve.process.repeated_log_lines import RepeatedLineFilter

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
