"""What a provider's cache charges, and what one way to compact would bring and take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the provider's cache charges, relative to a fresh input token."""

    read: float
    """A token read; raised by the share of reads that were measured to miss."""
    write: float
    """A token written."""
    cold: bool
    """True where nothing of the last request can be read any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one way to compact would bring, and take."""

    removed: int
    """R: tokens that leave."""
    rewrite: float
    """(w − r)·T: what is written to the cache again, in fresh input tokens."""
    summary: float = 0.0
    """S: the price of the summary call, in fresh input tokens of the main model."""

    @property
    def price(self) -> float:
        return self.rewrite + self.summary

    def beats(self, other: Offer, prices: Prices) -> bool:
        """Whether it is the better bargain; on a cold cache only the summary has a price."""
        if prices.cold:
            return self._gain(prices) > other._gain(prices)
        mine, theirs = self.removed * other.price, other.removed * self.price
        return mine > theirs if mine != theirs else self.removed > other.removed

    def pays(self, meter: float, theta: float, prices: Prices) -> bool:
        """Whether the meter has paid for it, or nothing but the summary must be paid."""
        return (prices.cold and self._gain(prices) > 0) or meter >= theta * self.price

    def _gain(self, prices: Prices) -> float:
        """What it saves at once where all must be written anyway."""
        return prices.write * self.removed - self.summary
