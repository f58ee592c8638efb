"""One log line for each call, tool and turn, with the figures as fields of the record.

No line holds anything that was said. The fields are flat, so that any formatter can write them.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

from trimtab.observe.timing import Running
from trimtab.session.happenings import (
    BrokeOff,
    CallBegan,
    CallEnded,
    Ended,
    Happening,
    ToolBegan,
    ToolEnded,
    TurnBegan,
)

log = logging.getLogger("trimtab.calls")


class Lines:
    """Writes what happens in one turn."""

    def __init__(self, agent: str = "") -> None:
        self._own: dict[str, Any] = {"agent": agent} if agent else {}
        self._tools = Running()
        self._since = 0.0
        self._share = 0.0

    def __call__(self, happening: Happening) -> None:
        """Hear what happens."""
        match happening:
            case TurnBegan():
                self._own["session"] = happening.session
                self._since = perf_counter()
            case CallBegan():
                self._share = happening.share
            case CallEnded():
                self._called(happening)
            case ToolBegan():
                self._tools.began(happening)
            case ToolEnded():
                self._tool(happening)
            case Ended():
                self._over(happening.why, happening.why, calls=happening.calls)
            case BrokeOff():
                why = happening.why
                how = why if why == "cancelled" else f"failed ({why})"
                self._over(how, why, error=happening.error)
            case _:
                pass

    def _called(self, call: CallEnded) -> None:
        used = call.usage
        given, read, out = (used.input, used.cache_read, used.output) if used else (0, 0, 0)
        figures: dict[str, Any] = {
            "model": call.model,
            "outcome": call.outcome,
            "seconds": round(call.seconds, 3),
            "share": round(self._share, 4),
            "input_tokens": given,
            "output_tokens": out,
            "cache_read_tokens": read,
            "cache_write_tokens": used.cache_write if used else 0,
            "cost": call.cost,
        }
        log.info(
            "Call of %s: %s in %.2f s, %d tokens in (%d cached), %d out, %.0f%% of the room",
            *(call.model, call.outcome, call.seconds, given, read, out, 100 * self._share),
            extra={**self._own, **figures},
        )

    def _tool(self, tool: ToolEnded) -> None:
        seconds = self._tools.ended(tool)
        if seconds is None:
            return  # its name may be one that the model has made up
        outcome = "error" if tool.is_error else "ok"
        log.info(
            "Tool %s: %s in %.2f s",
            *(tool.call.name, outcome, seconds),
            extra={**self._own, "tool": tool.call.name, "outcome": outcome, "seconds": seconds},
        )

    def _over(self, how: str, outcome: str, **figures: Any) -> None:
        seconds = perf_counter() - self._since
        told = {**self._own, "outcome": outcome, "seconds": round(seconds, 3), **figures}
        log.info("Turn %s in %.2f s", how, seconds, extra=told)
