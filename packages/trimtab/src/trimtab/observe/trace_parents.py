"""The trace that a caller has begun, as the header `traceparent` of W3C Trace Context names it.

A message keeps the trace of its request, so that the turn that answers it belongs to the same
trace, in any process.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

TRACEPARENT_HEADER = "traceparent"
_VALID_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_traceparent: ContextVar[str] = ContextVar("trimtab_traceparent", default="")


def accept_traceparent(given: str | None) -> str:
    """Return the caller's trace if it is valid. Otherwise return an empty text."""
    return given if given is not None and _VALID_TRACEPARENT.fullmatch(given) else ""


def current_traceparent() -> str:
    """Return the trace that the next turn continues. Empty if there is none."""
    return _traceparent.get()


def find_traceparent_of_request() -> str:
    """Return the current span as a trace to continue, or the caller's if there is no span."""
    # A program that traces has loaded it.
    tracing: Any = sys.modules.get("opentelemetry.trace")
    if tracing is not None:
        span = tracing.get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return current_traceparent()


@contextmanager
def bind_traceparent(traceparent: str) -> Generator[None]:
    """Set the caller's trace inside of a `with` block."""
    token = _traceparent.set(traceparent)
    try:
        yield
    finally:
        _traceparent.reset(token)


def set_traceparent(traceparent: str) -> None:
    """Set the trace for everything that this task does from now on. An empty text ends it."""
    _traceparent.set(traceparent)
