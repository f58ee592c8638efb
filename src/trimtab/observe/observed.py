"""A turn that is heard by metrics, spans and log lines, beside whoever else listens.

All of it comes from the happenings that a turn tells anyway. A watcher that fails is left out for
the rest of the turn: nobody's answer is lost because it could not be counted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType

from trimtab.observe import lines
from trimtab.session.happenings import CallBegan, Happening, Piece
from trimtab.session.tools import Tell

log = logging.getLogger("trimtab.observe")


def _ignore(_: Happening) -> None:
    pass


def observed(tell: Tell | None = None, *, agent: str = "") -> Tell:
    """`tell`, with everything counted that it is told. Make one for each turn.

    Prometheus' metrics are kept where `prometheus_client` is installed, see
    `trimtab.observe.prometheus`; spans go to the OpenTelemetry that the application has set up, if
    it has; log lines to `trimtab.calls`. `agent` is the name they all carry.
    """
    _loaded("prometheus")
    return when_watched(tell, agent=agent)


def when_watched(tell: Tell | None = None, *, agent: str = "") -> Tell:
    """The same, for those alone who watch already; `tell` itself where nobody does.

    In a terminal nobody reads metrics, and loading what keeps them takes longer than all the rest.
    Whoever shows them has loaded `trimtab.observe.prometheus`.
    """
    tell, watchers = tell or _ignore, list[Tell]()
    if isinstance(tell, Heard):
        return tell  # whoever has said so for a turn is not to be counted twice
    if metrics := sys.modules.get("trimtab.observe.prometheus"):
        watchers.append(metrics.Metered(agent))
    # An application that has set it up has loaded it.
    if "opentelemetry" in sys.modules and (spans := _loaded("otel")) is not None:
        watchers += [own for own in (spans.spans_of(agent),) if own is not None]
    if lines.log.isEnabledFor(logging.INFO):
        watchers.append(lines.Lines(agent))
    return Heard(watchers, tell) if watchers else tell


class Heard:
    """A `tell` that watchers hear first, everything but a reply's pieces behind its first."""

    def __init__(self, watchers: Sequence[Tell], tell: Tell = _ignore) -> None:
        self._watchers = list(watchers)
        self._tell = tell
        self._streaming = False

    def __call__(self, happening: Happening) -> None:
        """Hear what happens."""
        if isinstance(happening, Piece):
            if self._streaming:
                self._tell(happening)
                return
            self._streaming = True
        elif isinstance(happening, CallBegan):
            self._streaming = False
        for watcher in (*self._watchers,):
            try:
                watcher(happening)
            except Exception:
                self._watchers.remove(watcher)
                log.warning("%s is left out for this turn", type(watcher).__name__, exc_info=True)
        self._tell(happening)


@cache
def _loaded(name: str) -> ModuleType | None:
    """One of our modules; None where what it needs is not installed."""
    try:
        return import_module(f"trimtab.observe.{name}")
    except ImportError:
        return None
