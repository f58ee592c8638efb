"""What usage costs, at the catalog's list prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.log.event import Usage

SOFT_WINDOW_PRICE_FACTOR = 2
"""How many times as much the input costs above the soft window."""
CATALOG_PRICE_KEYS = ("input_price", "output_price", "cache_read", "cache_write")
"""What of a model's catalog entry says what it costs."""


def compute_cost_usd(usage: Usage, model_info: Mapping[str, Any]) -> float | None:
    """US dollars of one call at the catalog's list prices; None where it has none."""
    price: float | None = model_info.get("input_price")
    output: float | None = model_info.get("output_price")
    if price is None or output is None:
        return None
    if usage.input > (model_info.get("soft_window") or usage.input):
        price *= SOFT_WINDOW_PRICE_FACTOR
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    read = usage.cache_read * float(model_info.get("cache_read", 1.0))
    write = usage.cache_write * float(model_info.get("cache_write", 1.0))
    return ((fresh + read + write) * price + usage.output * output) / 1_000_000
