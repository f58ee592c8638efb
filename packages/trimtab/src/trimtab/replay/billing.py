"""Model a provider's prompt cache by its rules, call after call.

A prompt is a chain of pieces (head, then rounds) with their tokens and blocks. A call reads the
longest prefix that is stored, not expired and can be found. It writes the rest up to its last mark.
The remainder is paid at full price.

Derive the cache rules and prices of a replay from a model's catalog entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trimtab.engine.tokens.cost import HOUR_CACHE_WRITE_PRICE
from trimtab.models.catalog import ModelInfo, resolve_model_info

MARK_LOOKBACK_BLOCKS = 20
"""Blocks before a mark in which a marking provider looks for a stored prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """The cache rules of one provider."""

    style: str = "marks"
    """`marks`: found at marks; `automatic`: longest common prefix; `none`."""
    read: float = 0.1
    """Price of a token read, relative to a fresh one."""
    write: float = 1.25
    """Price of a token written, relative to a fresh one."""
    ttl: float = 300.0
    """Seconds that a stored prefix lives after its last use."""
    minimum: int = 1_024
    """Tokens below which a prefix is not stored."""
    step: int = 1
    """Tokens by which a stored prefix grows."""
    output: float = 5.0
    """Price of an output token, relative to a fresh input token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPiece:
    digest: bytes
    """Hash of its blocks, without marks."""
    tokens: int
    """Its size in tokens."""
    blocks: int
    """Number of its blocks, for the look-back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBill:
    """How the input of one call was billed, in tokens."""

    read: int
    """Tokens read from the cache."""
    write: int
    """Tokens written to the cache."""
    fresh: int
    """All other tokens."""
    write_long: int = 0
    """The part of `write` with the longer lifetime."""

    def cost(self, rules: CacheRules) -> float:
        """Return the cost in fresh input tokens."""
        short = self.write - self.write_long
        write_cost = short * rules.write + self.write_long * HOUR_CACHE_WRITE_PRICE
        return self.read * rules.read + write_cost + self.fresh

    def scaled(self, ratio: float, *, long_lived: bool) -> InputBill:
        """Return the bill in a provider's tokens, of which an estimated one is `ratio`."""
        read, total = round(self.read * ratio), round(self.total * ratio)
        write = min(round(self.write * ratio), total - read)
        return InputBill(
            read=read,
            write=write,
            fresh=total - read - write,
            write_long=write if long_lived else 0,
        )

    @property
    def total(self) -> int:
        """All tokens of the input."""
        return self.read + self.write + self.fresh


@dataclass(slots=True)
class PromptCacheModel:
    rules: CacheRules
    """The rules of the provider."""
    shared: int = 0
    """Tokens at the start of the prompt that other sessions keep in the cache."""
    _pieces: Sequence[PromptPiece] = ()
    _chain: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    _stored: dict[bytes, float] = field(default_factory=dict[bytes, float])
    _last: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    _last_at: float = 0.0

    def bill_call(
        self, pieces: Sequence[PromptPiece], marked_indexes: Sequence[int], now: float
    ) -> InputBill:
        """Bill one call. `marked_indexes` are the pieces after which the prompt is marked."""
        chain = self._chain_prefixes(pieces)
        total = chain[-1][1] if chain else 0
        if self.rules.style == "none":
            return InputBill(read=0, write=0, fresh=total)
        if self.rules.style == "automatic":
            return self._automatic(chain, total, now)
        return self._marked(chain, pieces, sorted(marked_indexes), total, now)

    def _chain_prefixes(self, pieces: Sequence[PromptPiece]) -> list[tuple[bytes, int]]:
        """Return, for each piece, a hash of the prompt up to its end, and the tokens up to there.

        A caller may extend the list that it passed before, and change nothing else in it.

        Most prompts extend the one before, so only the new pieces are hashed.
        """
        same = len(self._chain)
        if pieces is not self._pieces:  # else it was extended
            same = 0
            for mine, before in zip(pieces, self._pieces, strict=False):
                if mine is not before:
                    break
                same += 1
        chain = self._chain[:same]
        digest, size = chain[-1] if chain else (b"", 0)
        for piece in pieces[same:]:
            digest = hashlib.blake2b(digest + piece.digest, digest_size=16).digest()
            size += piece.tokens
            chain.append((digest, size))
        self._pieces, self._chain = pieces, chain
        return chain

    def _automatic(self, chain: list[tuple[bytes, int]], total: int, now: float) -> InputBill:
        read = 0
        if now - self._last_at <= self.rules.ttl:
            last = self._last
            same = _count_common(
                len(last), len(chain), lambda index: chain[index][0] == last[index][0]
            )
            read = chain[same - 1][1] if same else 0
        read = max(read, min(self.shared, total))
        read = read // self.rules.step * self.rules.step if read >= self.rules.minimum else 0
        self._last, self._last_at = chain, now
        return InputBill(read=read, write=total - read, fresh=0)

    def _marked(
        self,
        chain: list[tuple[bytes, int]],
        pieces: Sequence[PromptPiece],
        marks: Sequence[int],
        total: int,
        now: float,
    ) -> InputBill:
        read, hit = 0, b""
        for mark in marks:
            blocks, index = 0, mark
            while index >= 0 and blocks < MARK_LOOKBACK_BLOCKS:
                key, size = chain[index]
                if self._stored.get(key, -1.0) >= now and size > read:
                    read, hit = size, key
                blocks += pieces[index].blocks
                index -= 1
        if hit:
            self._stored[hit] = now + self.rules.ttl
        read = max(read, min(self.shared, total))
        last = read
        for mark in marks:
            key, size = chain[mark]
            if size >= self.rules.minimum:
                self._stored[key] = now + self.rules.ttl
                last = max(last, size)
        return InputBill(read=read, write=last - read, fresh=total - last)


def _count_common(first: int, second: int, is_same: Callable[[int], bool]) -> int:
    """Count the items with which two lists begin together, of which each extends what is before it.

    So if an item is the same, all before it are, and few of a long list need to be compared.
    """
    low, high = 0, min(first, second)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_same(middle - 1) else (low, middle - 1)
    return low


DEFAULT_OUTPUT_PRICE_RATIO = 5.0
"""Price of an output token relative to an input token, if the catalog has no prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPricing:
    """The prices and the cache rules by which a replay is billed."""

    name: str
    """The name in tables."""
    model: str
    """The model whose catalog entry is used."""
    rules: CacheRules
    """The rules of its cache."""
    price: float | None
    """US dollars per million fresh input tokens. None if the catalog has no price."""


def build_cache_rules(model_info: ModelInfo) -> CacheRules:
    """Convert a catalog entry to cache rules and the price ratio of its output."""
    ratio = DEFAULT_OUTPUT_PRICE_RATIO
    if model_info.input_price and model_info.output_price:
        ratio = model_info.output_price / model_info.input_price
    return CacheRules(
        style=model_info.cache_style,
        read=model_info.cache_read,
        write=model_info.cache_write,
        ttl=float(model_info.cache_ttl),
        minimum=model_info.cache_minimum,
        step=model_info.cache_step,
        output=ratio,
    )


def get_provider_pricing(model: str) -> ProviderPricing:
    """Return the prices and cache rules by which a replay of a model is billed.

    Args:
        model: The name of the replayed model.
    """
    entry = resolve_model_info(model)
    return ProviderPricing(
        name=_provider_name(entry),
        model=entry.name,
        rules=build_cache_rules(entry),
        price=entry.input_price,
    )


def _provider_name(model_info: ModelInfo) -> str:
    if model_info.dialect == "anthropic":
        return "Anthropic"
    return "OpenAI" if model_info.name.startswith(("gpt-", "o3", "o4")) else model_info.name
