"""The cost of usage at the catalog's list prices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, NamedTuple

from trimtab.engine.log.event import Usage

SOFT_WINDOW_PRICE_FACTOR = 2
"""How many times as much the input costs above the soft window."""
HOUR_CACHE_WRITE_PRICE = 2.0
"""Price of a token that Anthropic caches for an hour, relative to a fresh token."""
CATALOG_PRICE_KEYS = ("input_price", "output_price", "cache_read", "cache_write")
"""The keys of a model's catalog entry that name its prices."""
_SECONDS_PER_DAY = 86_400
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = date(1970, 1, 1)


class CostParts(NamedTuple):
    """What a call costs, in US dollars, by what was paid for."""

    fresh: float
    """Input that the cache had no part in."""
    cache_read: float
    """Input read from the cache."""
    cache_write: float
    """Input written to the cache for its usual lifetime."""
    cache_write_long: float
    """Input written to the cache for its longer lifetime."""
    output: float
    """Output, including reasoning."""


def compute_cost_usd(
    usage: Usage, model_info: Mapping[str, Any], *, at: float = 0.0
) -> float | None:
    """Return the US dollars of one call at the catalog's list prices; None if there are no prices.

    `at` is the time of the call in seconds since the epoch. If a price changes on a date, the price
    of the call's own day is used.
    """
    parts = compute_cost_parts(usage, model_info, at=at)
    return None if parts is None else sum(parts)


def compute_cost_parts(
    usage: Usage, model_info: Mapping[str, Any], *, at: float = 0.0
) -> CostParts | None:
    """Return the US dollars of one call by what was paid for; None if there are no prices."""
    prices = resolve_prices_at(model_info, at)
    price: float | None = prices.get("input_price")
    output: float | None = prices.get("output_price")
    if price is None or output is None:
        return None
    if usage.input > (model_info.get("soft_window") or usage.input):
        price *= SOFT_WINDOW_PRICE_FACTOR
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    short_price = float(prices.get("cache_write", 1.0))
    # OpenAI names no other price for twelve hours.
    is_claude = prices.get("dialect") == "anthropic" and prices.get("cache_style") == "marks"
    long_price = HOUR_CACHE_WRITE_PRICE if is_claude else short_price
    long_lived = min(usage.cache_write, usage.cache_write_long)
    return CostParts(
        fresh=fresh * price / 1_000_000,
        cache_read=usage.cache_read * float(prices.get("cache_read", 1.0)) * price / 1_000_000,
        cache_write=(usage.cache_write - long_lived) * short_price * price / 1_000_000,
        cache_write_long=long_lived * long_price * price / 1_000_000,
        output=usage.output * output / 1_000_000,
    )


def resolve_prices_at(model_info: Mapping[str, Any], at: float) -> Mapping[str, Any]:
    """Return a catalog entry with the prices of a day. `at` is in seconds since the epoch."""
    changes = model_info.get("price_changes")
    return {**model_info, **merge_price_changes(changes, at)} if changes else model_info


def merge_price_changes(price_changes: Iterable[Mapping[str, Any]], at: float) -> dict[str, Any]:
    """Merge all price changes up to a moment, the earliest first."""
    prices: dict[str, Any] = {}
    for change in price_changes:
        if count_days_to_date(change["from_date"]) * _SECONDS_PER_DAY <= at:
            prices |= {key: change[key] for key in CATALOG_PRICE_KEYS if key in change}
    return prices


def count_days_to_date(iso_date: str) -> int:
    """Return the days from 1970-01-01 to a date such as `2026-12-01`. Raise `ValueError` if it is
    not a date."""
    try:
        if _ISO_DATE.fullmatch(iso_date):  # Python reads other forms as well, such as 20261201
            return (date.fromisoformat(iso_date) - _EPOCH).days
    except ValueError:
        pass
    raise ValueError(f"invalid date {iso_date!r}: write it like 2026-12-01")
