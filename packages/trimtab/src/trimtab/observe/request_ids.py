"""The id of an HTTP request in its response, in log lines and on spans.

A caller may send its own id as `X-Request-ID`. A message keeps the id of its request, so that the
turn that answers it also has the id, in any process.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

REQUEST_ID_HEADER = "X-Request-ID"
MAX_REQUEST_ID_LENGTH = 128
_VALID_REQUEST_ID = re.compile(rf"[A-Za-z0-9._:/+=@-]{{1,{MAX_REQUEST_ID_LENGTH}}}")
"""The characters of UUIDs, ULIDs, trace ids and base64. None of them can forge a log line."""

_request_id: ContextVar[str] = ContextVar("trimtab_request_id", default="")


def current_request_id() -> str:
    """Return the id of the request that is being served. Empty if there is none."""
    return _request_id.get()


def accept_or_create_request_id(given: str | None) -> str:
    """Return the caller's id if it is valid, otherwise a new one."""
    if given is not None and _VALID_REQUEST_ID.fullmatch(given):
        return given
    return secrets.token_hex(16)


@contextmanager
def bind_request_id(request_id: str) -> Generator[None]:
    """Add an id to log lines and spans inside of a `with` block."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


def set_request_id(request_id: str) -> None:
    """Add an id to everything that this task does from now on. An empty id ends it."""
    _request_id.set(request_id)


class RequestIdLogFilter(logging.Filter):
    """Adds `request_id`, `trace_id` and `span_id` to log records if they exist."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields and accept the record."""
        if (request_id := current_request_id()) and not hasattr(record, "request_id"):
            record.request_id = request_id
        # A program that traces has loaded it.
        tracing: Any = sys.modules.get("opentelemetry.trace")
        if tracing is not None:
            span = tracing.get_current_span().get_span_context()
            if span.is_valid:
                record.trace_id = f"{span.trace_id:032x}"
                record.span_id = f"{span.span_id:016x}"
        return True
