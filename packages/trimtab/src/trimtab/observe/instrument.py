"""Pass the events of a turn to metrics, spans and log lines, and to the caller's own listener.

An observer that fails is skipped for the rest of the turn, so that no answer is lost because of it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType

from trimtab.observe import log_lines
from trimtab.session.events import ModelCallStarted, TextDelta, TurnEvent
from trimtab.session.tools import OnEvent

log = logging.getLogger("trimtab.observe")

turn_observers: list[Callable[[str, str], OnEvent]] = []
"""Further observers: each is called with agent and session, and returns the observer of a turn."""


def _ignore_event(_: TurnEvent) -> None:
    pass


def instrument(on_event: OnEvent | None = None, *, agent: str = "", session: str = "") -> OnEvent:
    """Return an `on_event` callback that records events and passes them on. Make one for each turn.

    Spans go to OpenTelemetry if the application has set it up. Log lines go to the logger
    `trimtab.calls`. If nobody observes turns, `on_event` is returned unchanged.

    Args:
        on_event: Your own callback, which also gets every event.
        agent: The agent's name in metrics, spans and log lines.
        session: The session of events outside of a turn. A turn has its own.

    Returns:
        The callback for `run_turn(on_event=…)`.

    Example:
        >>> await run_turn(session, provider, on_event=instrument(agent="helper"))
    """
    on_event = on_event or _ignore_event
    if isinstance(on_event, EventFanOut):
        return on_event  # it is instrumented already and must not be counted twice
    watchers = [create(agent, session) for create in turn_observers]
    # An application that has set it up has loaded it.
    if "opentelemetry" in sys.modules and (spans := _import_spans()) is not None:
        watchers += [
            watcher for watcher in (spans.create_turn_spans(agent),) if watcher is not None
        ]
    if log_lines.log.isEnabledFor(logging.INFO):
        watchers.append(log_lines.TurnEventLogger(agent))
    return EventFanOut(watchers, on_event) if watchers else on_event


class EventFanOut:
    """An `on_event` callback that calls observers first. They get only the first delta of a
    reply."""

    def __init__(self, watchers: Sequence[OnEvent], on_event: OnEvent = _ignore_event) -> None:
        self._watchers = list(watchers)
        self._tell = on_event
        self._streaming = False

    def __call__(self, event: TurnEvent) -> None:
        """Pass one event on."""
        if isinstance(event, TextDelta):
            if self._streaming:
                self._tell(event)
                return
            self._streaming = True
        elif isinstance(event, ModelCallStarted):
            self._streaming = False
        for watcher in (*self._watchers,):
            try:
                watcher(event)
            except Exception:
                self._watchers.remove(watcher)
                log.warning(
                    "observer %s failed and is skipped for the rest of this turn",
                    type(watcher).__name__,
                    exc_info=True,
                )
        self._tell(event)


@cache
def _import_spans() -> ModuleType | None:
    """Import the module of the spans. None if the API of OpenTelemetry is not installed."""
    try:
        return import_module("trimtab.observe.otel")
    except ImportError:
        return None
