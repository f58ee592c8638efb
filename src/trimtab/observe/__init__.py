"""Metrics, spans and log lines of turns: they show token use and early signs of problems.

`REGISTRY` and `render_metrics` need `prometheus_client`, which the extra `serve` installs.
Importing either turns Prometheus metrics on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not at first use: a module has the function's name, and would be found in its place.
from trimtab.observe.instrument import instrument as instrument

if TYPE_CHECKING:
    from trimtab.observe.turn_metrics_and_endpoint import REGISTRY as REGISTRY
    from trimtab.observe.turn_metrics_and_endpoint import render_metrics as render_metrics

__all__ = ["REGISTRY", "instrument", "render_metrics"]


def __getattr__(name: str) -> Any:
    """Import names that need Prometheus at their first use."""
    if name not in __all__:
        raise AttributeError(f"module 'trimtab.observe' has no attribute {name!r}")
    return getattr(import_module("trimtab.observe.turn_metrics_and_endpoint"), name)
