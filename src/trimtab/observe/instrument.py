"""Pass the events of a turn to metrics, spans and log lines, and to the caller's own listener.

An observer that fails is skipped for the rest of the turn, so that no answer is lost because of it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType

from trimtab.observe import turn_event_log
from trimtab.session.events import ModelCallStarted, TextDelta, TurnEvent
from trimtab.session.tools import OnEvent

log = logging.getLogger("trimtab.observe")


def _ignore_event(_: TurnEvent) -> None:
    pass


def instrument(on_event: OnEvent | None = None, *, agent: str = "") -> OnEvent:
    """Return an `on_event` callback that records events and passes them on. Make one for each turn.

    Prometheus metrics are recorded if `prometheus_client` is installed. Spans go to OpenTelemetry
    if the application has set it up. Log lines go to the logger `trimtab.calls`.

    Args:
        on_event: Your own callback, which also gets every event.
        agent: The agent's name in metrics, spans and log lines.

    Returns:
        The callback for `run_turn(on_event=…)`.

    Example:
        >>> await run_turn(session, provider, on_event=instrument(agent="helper"))
    """
    _import_observer("turn_metrics_and_endpoint")
    return instrument_if_watched(on_event, agent=agent)


def instrument_if_watched(
    on_event: OnEvent | None = None, *, agent: str = "", session: str = ""
) -> OnEvent:
    """Instrument a turn only if metrics, traces or log lines are already in use.

    Otherwise `on_event` is returned unchanged, because loading Prometheus takes long. Metrics are
    in use once `trimtab.observe.turn_metrics_and_endpoint` is imported.

    Args:
        on_event: Your own callback, which also gets every event.
        agent: The agent's name in metrics, spans and log lines.
        session: The session of events outside of a turn. A turn has its own.

    Returns:
        The callback for `run_turn(on_event=…)`.
    """
    on_event, watchers = on_event or _ignore_event, list[OnEvent]()
    if isinstance(on_event, EventFanOut):
        return on_event  # it is instrumented already and must not be counted twice
    if metrics := sys.modules.get("trimtab.observe.turn_metrics_and_endpoint"):
        watchers.append(metrics.TurnMetrics(agent, session))
    # An application that has set it up has loaded it.
    if "opentelemetry" in sys.modules and (spans := _import_observer("otel")) is not None:
        watchers += [own for own in (spans.create_turn_spans(agent),) if own is not None]
    if turn_event_log.log.isEnabledFor(logging.INFO):
        watchers.append(turn_event_log.TurnEventLogger(agent))
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
def _import_observer(module_name: str) -> ModuleType | None:
    """Import one of our modules. None if a package that it needs is not installed."""
    try:
        return import_module(f"trimtab.observe.{module_name}")
    except ImportError:
        return None
