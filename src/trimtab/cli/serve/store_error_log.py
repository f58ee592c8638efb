"""Errors of the store in the server's log: one line at ERROR, not one for each of thousands."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager

from trimtab.errors import StoreError, store_error_listeners

REPEAT_AFTER_S = 60.0
"""Seconds after which an error of the same kind is logged again."""

log = logging.getLogger("trimtab.serve")


@contextmanager
def log_store_errors() -> Generator[None]:
    """Log what the store meets, for the length of a `with`."""
    last: dict[str, float] = {}

    def listen(error: StoreError) -> None:
        kind, now = type(error).__name__, time.monotonic()
        if now - last.get(kind, -REPEAT_AFTER_S) >= REPEAT_AFTER_S:
            last[kind] = now
            log.error("the store failed: %s", error, extra={"event": "store_failed"})

    store_error_listeners.append(listen)
    try:
        yield
    finally:
        store_error_listeners.remove(listen)
