"""What usage costs, at the catalog's list prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.core.event import Usage

CLIFF = 2
"""How many times as much the input costs above the soft window."""
PRICES = ("input_price", "output_price", "cache_read", "cache_write")
"""What of a model's catalog entry says what it costs."""


def cost_of(usage: Usage, entry: Mapping[str, Any]) -> float | None:
    """US dollars of one call at the catalog's list prices; None where it has none."""
    price: float | None = entry.get("input_price")
    output: float | None = entry.get("output_price")
    if price is None or output is None:
        return None
    if usage.input > (entry.get("soft_window") or usage.input):
        price *= CLIFF
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    read = usage.cache_read * float(entry.get("cache_read", 1.0))
    write = usage.cache_write * float(entry.get("cache_write", 1.0))
    return ((fresh + read + write) * price + usage.output * output) / 1_000_000
