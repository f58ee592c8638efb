"""What runs in a turn and since when, for those who must close it where nobody tells its end."""

from __future__ import annotations

from time import perf_counter

from trimtab.core.message import ToolCall
from trimtab.session.happenings import ToolBegan, ToolEnded


class Running:
    """The tools that run, each since when. Ids may come twice: a call is known by its identity."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[ToolCall, float]] = {}

    def began(self, happening: ToolBegan) -> None:
        """A tool runs from now on."""
        self._since[id(happening.call)] = (happening.call, perf_counter())

    def ended(self, happening: ToolEnded) -> float | None:
        """Seconds that it ran; None where it never did: unknown, not allowed, or malformed."""
        found = self._since.pop(id(happening.call), None)
        return None if found is None else perf_counter() - found[1]

    def cut_off(self) -> list[tuple[ToolCall, float]]:
        """Those that will not be heard of again, each with its seconds."""
        now, left = perf_counter(), list(self._since.values())
        self._since.clear()
        return [(call, now - since) for call, since in left]
