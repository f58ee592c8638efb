"""What a call cost, and what it lost because the cache was gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trimtab.engine.log.event import Usage
from trimtab.inspect.timeline import SentCall
from trimtab.replay.cache_breaks import MIN_LOST_TOKENS, MIN_READ_SHARE

Price = Callable[[Usage], tuple[float, ...] | None]
"""Returns the cost of usage: fresh input, cache reads, cache writes, output."""


def make_price(compute: Callable[[Usage], Sequence[float] | None]) -> Price:
    """Return a price with both lifetimes of the cache in one."""

    def price(usage: Usage) -> tuple[float, ...] | None:
        parts = compute(usage)
        if parts is None:
            return None
        fresh, read, write, write_long, output = parts
        return fresh, read, write + write_long, output

    return price


def with_usage(call: SentCall, usage: Usage, price: Price) -> SentCall:
    """Return the call with what the provider reported."""
    return replace(
        call,
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        dollars=price(usage),
    )


def with_loss(call: SentCall, before: Usage, usage: Usage, price: Price, reason: str) -> SentCall:
    """Return the call with what it did not read from the cache although it had been sent before."""
    tokens = min(before.input, usage.input) - usage.cache_read
    if tokens < MIN_LOST_TOKENS or usage.cache_read >= MIN_READ_SHARE * before.input:
        return call
    return with_lost_tokens(call, tokens, usage, price, reason)


def with_lost_tokens(
    call: SentCall, tokens: int, usage: Usage, price: Price, reason: str
) -> SentCall:
    """Return the call with this number of lost tokens, and what it cost to send them again."""
    again = price(Usage(input=tokens, cache_write=tokens if usage.cache_write else 0))
    read = price(Usage(input=tokens, cache_read=tokens))
    dollars = max(0.0, sum(again) - sum(read)) if again and read else 0.0
    return replace(call, lost=tokens, lost_dollars=dollars, lost_because=reason)
