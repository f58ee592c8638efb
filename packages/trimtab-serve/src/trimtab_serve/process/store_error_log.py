"""Log store errors at ERROR, once a minute for each kind instead of thousands of times."""

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
