"""Metrics for Prometheus, which the extra `serve` installs. Importing either name turns them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab_serve.metrics.prometheus import REGISTRY as REGISTRY
    from trimtab_serve.metrics.prometheus import render_metrics as render_metrics


_HOMES = {
    "REGISTRY": "metrics.prometheus",
    "render_metrics": "metrics.prometheus",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
