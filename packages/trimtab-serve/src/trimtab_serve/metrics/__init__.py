"""Metrics for Prometheus, which the extra `serve` installs. Importing either name turns them on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab_serve.metrics.prometheus import REGISTRY as REGISTRY
    from trimtab_serve.metrics.prometheus import render_metrics as render_metrics


__all__ = ["REGISTRY", "render_metrics"]

_HOMES = {
    "REGISTRY": "prometheus",
    "render_metrics": "prometheus",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab_serve.metrics' has no attribute {name!r}")
    return getattr(import_module(f"trimtab_serve.metrics.{_HOMES[name]}"), name)
