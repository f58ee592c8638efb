"""Pass the events of a turn to metrics, spans and log lines, and to the caller's own listener.

A watcher that fails is left out for the rest of the turn: no answer is lost because it could not be
counted.
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
    """Make an `on_event` that counts what happens, and passes it on. Make one for each turn.

    Prometheus' metrics are kept where `prometheus_client` is installed, see
    `trimtab.observe.turn_metrics_and_endpoint`; spans go to the OpenTelemetry that the application
    has set up, if it has; log lines to `trimtab.calls`. `agent` is the name they all carry.
    """
    _import_observer("turn_metrics_and_endpoint")
    return instrument_if_watched(on_event, agent=agent)


def instrument_if_watched(
    on_event: OnEvent | None = None, *, agent: str = "", session: str = ""
) -> OnEvent:
    """Do the same only if somebody watches already; else return `on_event` as it is. Name the
    session for events outside of a turn, which has its own.

    In a terminal nobody reads metrics, and loading what keeps them takes longer than all the rest.
    Whoever shows them has loaded `trimtab.observe.turn_metrics_and_endpoint`.
    """
    on_event, watchers = on_event or _ignore_event, list[OnEvent]()
    if isinstance(on_event, EventFanOut):
        return on_event  # whoever has said so for a turn is not to be counted twice
    if metrics := sys.modules.get("trimtab.observe.turn_metrics_and_endpoint"):
        watchers.append(metrics.TurnMetrics(agent, session))
    # An application that has set it up has loaded it.
    if "opentelemetry" in sys.modules and (spans := _import_observer("otel")) is not None:
        watchers += [own for own in (spans.create_turn_spans(agent),) if own is not None]
    if turn_event_log.log.isEnabledFor(logging.INFO):
        watchers.append(turn_event_log.TurnEventLogger(agent))
    return EventFanOut(watchers, on_event) if watchers else on_event


class EventFanOut:
    """An `on_event` that watchers get first: every event but the deltas after a reply's first."""

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
                    "%s failed and is left out for the rest of this turn",
                    type(watcher).__name__,
                    exc_info=True,
                )
        self._tell(event)


@cache
def _import_observer(module_name: str) -> ModuleType | None:
    """One of our modules; None where what it needs is not installed."""
    try:
        return import_module(f"trimtab.observe.{module_name}")
    except ImportError:
        return None
