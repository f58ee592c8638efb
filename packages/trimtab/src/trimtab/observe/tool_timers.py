"""Times of running tools, for observers that must end a tool whose end is never reported."""

from __future__ import annotations

from time import perf_counter

from trimtab.engine.log.message import ToolCall
from trimtab.session.events import ToolFinished, ToolStarted


class RunningToolTimers:
    """The running tools and their start times. Ids may repeat, so calls are compared by
    identity."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[ToolCall, float]] = {}

    def start(self, event: ToolStarted) -> None:
        """Start the timer of a tool."""
        self._since[id(event.call)] = (event.call, perf_counter())

    def stop(self, event: ToolFinished) -> float | None:
        """Return the seconds that a tool ran. None if it never ran: unknown, not allowed, or
        malformed."""
        entry = self._since.pop(id(event.call), None)
        return None if entry is None else perf_counter() - entry[1]

    def stop_all(self) -> list[tuple[ToolCall, float]]:
        """Return the tools whose end will not be reported, each with its seconds."""
        now = perf_counter()
        timers = list(self._since.values())
        self._since.clear()
        return [(call, now - since) for call, since in timers]
