"""What of the model catalog has aged: `models.toml` against the package genai-prices.

    python -m benchmarks.catalog_age [--quick] [--json]

A row is a value that differs today, a price that they say will change and we do not, a model that
we lack, or one that they call deprecated and for which we know no day. Nothing here is broken by
itself: sources disagree, and somebody has to look. A difference whose reason is known stands in
`ACCEPTED`. What must hold is that no price of ours is still to change on
a day that has passed long ago: those belong into the entry itself. `--quick` leaves out the models
that we lack.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from importlib import import_module
from typing import Any

from benchmarks import harness
from trimtab.models.catalog import (
    ModelInfo,
    find_model_info,
    find_retirement_date,
    list_model_infos,
)

PROVIDER_BY_MAKER = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "deepseek": "deepseek",
    "xai": "x-ai",
    "moonshot": "moonshotai",
    "zai": "zai",
    "minimax": "minimax",
    "mistral": "mistral",
}
"""By our name for a maker, theirs. Qwen's own prices they do not have, Llama's maker has none."""
PEAK_HOURS = "ours are the prices of the peak hours, theirs those of the hour of the run"
HOSTS = "open weights: each host has its own price"
PRICES = ("input price", "output price", "cache read price")
ACCEPTED = {
    **{
        (name, about): PEAK_HOURS
        for name in ("deepseek-flash", "deepseek-v4-flash", "deepseek-v4-pro")
        for about in PRICES
    },
    **{(name, about): HOSTS for name in ("gpt-oss-120b", "gpt-oss-20b") for about in PRICES},
}
"""By model and what differs: why it stays."""
UNWANTED_NAME_PARTS = (
    *("audio", "embed", "image", "live", "moderation", "ocr", "realtime", "robotics", "search"),
    *("transcribe", "tts", "vision", "voice", "whisper", "omni", "banana", "instruct", "babbage"),
    *("davinci", "curie", "gemma", "computer-use", "sora"),
)
"""Parts of the names of what is no model for a conversation."""
MAX_WINDOW_DIFFERENCE = 0.06
"""Share by which windows may differ: 1,000,000 is often written for 1,048,576."""
MAX_PRICE_DIFFERENCE = 0.02
"""Share by which prices may differ: ratios are rounded to three digits."""


def main(quick: bool) -> harness.Report:
    now = time.time()
    providers: dict[str, Any] = {p.id: p for p in import_module("genai_prices.data").providers}
    rows: list[dict[str, str]] = []
    compared = 0
    for maker, infos in list_model_infos(at=now).items():
        provider = providers.get(PROVIDER_BY_MAKER.get(maker, ""))
        if provider is None:
            continue
        for info in infos:
            theirs = provider.find_model(info.name)
            if theirs is not None:
                compared += 1
                rows += _compare_model(info, theirs, now)
        if not quick:
            rows += _list_lacking_models(provider, now)
    open_rows = [row for row in rows if (row["model"], row["about"]) not in ACCEPTED]
    total = sum(len(infos) for infos in list_model_infos(at=now).values())
    report: harness.Report = {
        "sample": f"{compared} of {total} models are known to both",
        "accepted": f"{len(rows) - len(open_rows)} differences with a known reason",
        "aged": len(open_rows),
        "broken": _list_stale_changes(now),
    }
    return {**report, "rows": open_rows} if open_rows else report


def _compare_model(info: ModelInfo, theirs: Any, now: float) -> Iterator[dict[str, str]]:
    prices = theirs.get_prices(datetime.fromtimestamp(now, UTC))
    pairs = {
        "input price": (info.input_price, _read_price(prices, "input_mtok")),
        "output price": (info.output_price, _read_price(prices, "output_mtok")),
        "cache read price": (info.cache_read_price, _read_price(prices, "cache_read_mtok")),
        "cache write price": (info.cache_write_price, _read_price(prices, "cache_write_mtok")),
    }
    for about, (own, other) in pairs.items():
        if other is not None and _differs(own, other, MAX_PRICE_DIFFERENCE):
            yield _row(info.name, about, own, other)
    window = theirs.context_window
    if window and _differs(info.context_window, window, MAX_WINDOW_DIFFERENCE):
        yield _row(info.name, "window", info.context_window, window)
    own_days = {change.from_date for change in info.price_changes}
    for day in _list_coming_changes(theirs, now):
        if day.isoformat() not in own_days:
            yield _row(info.name, "price change", "none", day)
    if theirs.deprecated and find_retirement_date(info.name) is None:
        yield _row(info.name, "deprecated", "not known", "yes")


def _read_price(prices: Any, name: str) -> float | None:
    """A price below all tiers; None where there is none."""
    value = getattr(prices, name, None)
    return None if value is None else float(getattr(value, "base", value))


def _differs(own: float | None, other: float, share: float) -> bool:
    return own is None or abs(own - other) > share * max(abs(own), abs(other))


def _list_coming_changes(theirs: Any, now: float) -> list[date]:
    if not isinstance(theirs.prices, list):
        return []
    today = datetime.fromtimestamp(now, UTC).date()
    starts = (getattr(price.constraint, "start_date", None) for price in theirs.prices)
    return sorted(day for day in starts if day is not None and day > today)


def _list_lacking_models(provider: Any, now: float) -> Iterator[dict[str, str]]:
    for theirs in provider.models:
        name = theirs.id.lower()
        is_chat = not any(part in name for part in UNWANTED_NAME_PARTS) and not theirs.deprecated
        # Somebody else's model, such as Claude on Vertex, is its maker's to list.
        if not is_chat or find_model_info(name, at=now) is not None:
            continue
        prices = theirs.get_prices(datetime.fromtimestamp(now, UTC))
        figures = [_read_price(prices, key) for key in ("input_mtok", "output_mtok")]
        if all(figures):
            told = f"{theirs.context_window or 'window unknown'}, ${figures[0]:g}/{figures[1]:g}"
            yield _row(theirs.id, "lacking", provider.id, told)


def _list_stale_changes(now: float, days: int = 90) -> list[str]:
    """Price changes that took place so long ago that no recorded call needs them any more."""
    past = now - days * 86_400
    old = {i.name: i for infos in list_model_infos(at=0.0).values() for i in infos}
    left = {i.name: i for infos in list_model_infos(at=past).values() for i in infos}
    return [
        f"{name}: the price changed on {info.price_changes[0].from_date}; write it as the price"
        for name, info in old.items()
        if len(info.price_changes) > len(left[name].price_changes)
    ]


def _row(model: str, about: str, own: object, other: object) -> dict[str, str]:
    return {"model": model, "about": about, "ours": str(own), "theirs": str(other)}


if __name__ == "__main__":
    try:
        import_module("genai_prices")
    except ModuleNotFoundError:
        why = "genai-prices is not installed; it is in the dependency group dev"
        sys.exit(harness.skip(why, as_json="--json" in sys.argv))
    sys.exit(harness.run(__doc__, main, ("genai-prices",)))
