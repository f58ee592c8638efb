"""Notice that the event loop stands still, from outside of it."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from threading import get_ident
from time import monotonic

TICK_S = 1.0
"""Seconds between two notes that the event loop runs."""
LOGGED_STALL_S = 5.0
"""Seconds without the loop after which the log says what it is doing."""
LOGGED_FRAMES = 20
"""Number of calls in the log, the innermost ones."""
MAX_STALL_S = 120.0
"""Seconds without the loop after which the process should be restarted. Long work must end by
itself before that."""

log = logging.getLogger("trimtab.serve")


class LoopHealth:
    """When the event loop last ran. Any thread may ask."""

    def __init__(self) -> None:
        self._ran_at = monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = get_ident()
        self._logged_stall_at: float | None = None

    @property
    def stalled_s(self) -> float:
        """Seconds since the loop last ran."""
        return monotonic() - self._ran_at

    @property
    def is_alive(self) -> bool:
        """Whether the process needs no restart."""
        return self.stalled_s < MAX_STALL_S

    async def run(self) -> None:
        """Note that the loop runs, until cancelled."""
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        while True:
            self._ran_at = monotonic()
            await asyncio.sleep(TICK_S)

    def log_stall(self) -> None:
        """Log the stack of the loop's thread once for each stall.

        A loop that has not begun does not stall: the process is still starting.
        """
        if self._loop is None:
            return
        if self.stalled_s < LOGGED_STALL_S or self._logged_stall_at == self._ran_at:
            return
        self._logged_stall_at = self._ran_at
        # As documented in spite of its name.
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        task = asyncio.current_task(self._loop)
        log.warning(
            "the event loop has not run for %.0f s; it is in %s:\n%s",
            self.stalled_s,
            "no task" if task is None else task.get_name(),
            "".join(traceback.format_stack(frame, LOGGED_FRAMES)).rstrip()
            if frame is not None
            else "",
            extra={"event": "loop_stalled"},
        )
