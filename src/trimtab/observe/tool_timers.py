"""What runs in a turn and since when, for those who must close it where nobody tells its end."""

from __future__ import annotations

from time import perf_counter

from trimtab.log.message import ToolCall
from trimtab.session.events import ToolFinished, ToolStarted


class RunningToolTimers:
    """The tools that run, each since when. Ids may come twice: a call is known by its identity."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[ToolCall, float]] = {}

    def start(self, event: ToolStarted) -> None:
        """A tool runs from now on."""
        self._since[id(event.call)] = (event.call, perf_counter())

    def stop(self, event: ToolFinished) -> float | None:
        """Seconds that it ran; None where it never did: unknown, not allowed, or malformed."""
        found = self._since.pop(id(event.call), None)
        return None if found is None else perf_counter() - found[1]

    def stop_all(self) -> list[tuple[ToolCall, float]]:
        """Those that will not be heard of again, each with its seconds."""
        now, left = perf_counter(), list(self._since.values())
        self._since.clear()
        return [(call, now - since) for call, since in left]
