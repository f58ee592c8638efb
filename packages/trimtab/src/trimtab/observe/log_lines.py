"""One log line for each model call, tool call and turn, with the figures as fields of the record.

No line contains text of a message. The fields are flat, so that any formatter can write them.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

from trimtab.observe.tool_timers import RunningToolTimers
from trimtab.providers.base import TRANSIENT_KINDS
from trimtab.session import events as turn_events

log = logging.getLogger("trimtab.calls")


class TurnEventLogger:
    """Writes the log lines of one turn."""

    def __init__(self, agent: str = "") -> None:
        self._own: dict[str, Any] = {"agent": agent} if agent else {}
        self._tools = RunningToolTimers()
        self._since = 0.0
        self._budget_ratio = 0.0

    def __call__(self, event: turn_events.TurnEvent) -> None:
        """Log one event."""
        match event:
            case turn_events.TurnStarted():
                self._own["session"] = event.session
                self._since = perf_counter()
            case turn_events.ModelCallStarted():
                self._budget_ratio = event.room_share
            case turn_events.ModelCallFinished():
                self._log_call(event)
            case turn_events.ToolStarted():
                self._tools.start(event)
            case turn_events.ToolFinished():
                self._log_tool(event)
            case turn_events.TurnFinished():
                self._log_turn_end(event.reason, event.reason, calls=event.calls)
            case turn_events.TurnFailed():
                reason = event.reason
                how = reason if reason == "cancelled" else f"failed ({reason})"
                self._log_turn_end(how, reason, level=_failure_level(reason), error=event.error)
            case _:
                pass

    def _log_call(self, call: turn_events.ModelCallFinished) -> None:
        usage = call.usage
        input_tokens, read, out = (
            (usage.input, usage.cache_read, usage.output) if usage else (0, 0, 0)
        )
        figures: dict[str, Any] = {
            "model": call.model,
            "outcome": call.outcome,
            "duration_s": round(call.seconds, 3),
            "budget_ratio": round(self._budget_ratio, 4),
            "input_tokens": input_tokens,
            "output_tokens": out,
            "cache_read_tokens": read,
            "cache_write_tokens": usage.cache_write if usage else 0,
            "cost_usd": call.cost,
        }
        log.info(
            "Call of %s: %s in %.2f s, %d tokens in (%d cached), %d out, %.0f%% of the budget",
            *(
                call.model,
                call.outcome,
                call.seconds,
                input_tokens,
                read,
                out,
                100 * self._budget_ratio,
            ),
            extra={**self._own, **figures},
        )

    def _log_tool(self, tool: turn_events.ToolFinished) -> None:
        seconds = self._tools.stop(tool)
        if seconds is None:
            return  # its name may be one that the model has made up
        outcome = "error" if tool.is_error else "ok"
        log.info(
            "Tool %s: %s in %.2f s",
            *(tool.call.name, outcome, seconds),
            extra={**self._own, "tool": tool.call.name, "outcome": outcome, "duration_s": seconds},
        )

    def _log_turn_end(
        self, how: str, outcome: str, *, level: int = logging.INFO, **figures: Any
    ) -> None:
        seconds = perf_counter() - self._since
        fields = {**self._own, "outcome": outcome, "duration_s": round(seconds, 3), **figures}
        log.log(level, "Turn %s in %.2f s", how, seconds, extra=fields)


def _failure_level(reason: str) -> int:
    """Return the log level: a warning for temporary failures, info for a cancelled or taken-over
    turn, otherwise an error."""
    if reason in ("cancelled", "stale"):
        return logging.INFO
    return logging.WARNING if reason in TRANSIENT_KINDS else logging.ERROR
