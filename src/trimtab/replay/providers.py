"""Whose cache a replay is billed by: a model's catalog entry as cache rules and prices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.catalog import Entry, resolve
from trimtab.replay.cache import Rules

ANTHROPIC, OPENAI = "claude-sonnet-4-5", "gpt-5"
"""Whose rules stand for the two kinds of cache, where the model's own is another."""
OUTPUT_RATIO = 5.0
"""Price of an output token over one of input, where the catalog has no prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    name: str
    """As tables show it."""
    model: str
    """Whose catalog entry it is made from."""
    rules: Rules
    """How its cache bills."""
    price: float | None
    """US dollars per million fresh input tokens; None where the catalog has none."""


def rules_of(entry: Entry) -> Rules:
    """A catalog entry's cache and the price of its output."""
    ratio = OUTPUT_RATIO
    if entry.input_price and entry.output_price:
        ratio = entry.output_price / entry.input_price
    return Rules(
        style=entry.cache_style,
        read=entry.cache_read,
        write=entry.cache_write,
        ttl=float(entry.cache_ttl),
        minimum=entry.cache_minimum,
        step=entry.cache_step,
        output=ratio,
    )


def providers_for(model: str) -> tuple[Provider, ...]:
    """The model's own first, whose prices policies decide by; then the other kinds of cache."""
    entry = resolve(model)
    own = _provider(_named(entry), entry)
    others = [_provider("Anthropic", resolve(ANTHROPIC)), _provider("OpenAI", resolve(OPENAI))]
    others.append(_without(own))
    known = {own.name}
    if own.rules.style == "none":
        known.add("no cache")
    return (own, *(other for other in others if other.name not in known))


def _named(entry: Entry) -> str:
    if entry.dialect == "anthropic":
        return "Anthropic"
    return "OpenAI" if entry.name.startswith(("gpt-", "o3", "o4")) else entry.name


def _provider(name: str, entry: Entry) -> Provider:
    return Provider(name=name, model=entry.name, rules=rules_of(entry), price=entry.input_price)


def _without(own: Provider) -> Provider:
    """The same prices, and no cache."""
    rules = replace(own.rules, style="none", read=1.0, write=1.0, ttl=0.0, minimum=0, step=1)
    return Provider(name="no cache", model=own.model, rules=rules, price=own.price)
