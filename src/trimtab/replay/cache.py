"""A provider's prompt cache, as its rules say, call after call.

A prompt is a chain of pieces (head, then rounds) with their tokens and blocks. What a call reads is
the longest prefix that is stored, alive and findable; what it writes is the rest up to its last
mark; the remainder is paid in full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

LOOK_BACK = 20
"""Blocks before a mark in which a marking provider looks for a stored prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One provider's cache."""

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
class Piece:
    digest: bytes
    """Of its blocks, without marks."""
    tokens: int
    """Its size."""
    blocks: int
    """How many the look-back counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one call's input was billed as, in tokens."""

    read: int
    """From the cache."""
    write: int
    """Into the cache."""
    fresh: int
    """Neither."""

    def cost(self, rules: Rules) -> float:
        """In fresh input tokens."""
        return self.read * rules.read + self.write * rules.write + self.fresh


@dataclass(slots=True)
class Cache:
    rules: Rules
    """The provider's."""
    _stored: dict[bytes, float] = field(default_factory=dict[bytes, float])
    _last: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    _last_at: float = 0.0

    def call(self, pieces: Sequence[Piece], marks: Sequence[int], now: float) -> Bill:
        """Bill one call; `marks` are indexes of pieces after which the prompt is marked."""
        total = sum(piece.tokens for piece in pieces)
        if self.rules.style == "none":
            return Bill(read=0, write=0, fresh=total)
        chain = _chain(pieces)
        if self.rules.style == "automatic":
            return self._automatic(chain, total, now)
        return self._marked(chain, pieces, sorted(marks), total, now)

    def _automatic(self, chain: list[tuple[bytes, int]], total: int, now: float) -> Bill:
        read = 0
        if now - self._last_at <= self.rules.ttl:
            for (mine, size), (theirs, _) in zip(chain, self._last, strict=False):
                if mine != theirs:
                    break
                read = size
        read = read // self.rules.step * self.rules.step if read >= self.rules.minimum else 0
        self._last, self._last_at = chain, now
        return Bill(read=read, write=total - read, fresh=0)

    def _marked(
        self,
        chain: list[tuple[bytes, int]],
        pieces: Sequence[Piece],
        marks: Sequence[int],
        total: int,
        now: float,
    ) -> Bill:
        read, found = 0, b""
        for mark in marks:
            blocks, index = 0, mark
            while index >= 0 and blocks < LOOK_BACK:
                key, size = chain[index]
                if self._stored.get(key, -1.0) >= now and size > read:
                    read, found = size, key
                blocks += pieces[index].blocks
                index -= 1
        if found:
            self._stored[found] = now + self.rules.ttl
        last = read
        for mark in marks:
            key, size = chain[mark]
            if size >= self.rules.minimum:
                self._stored[key] = now + self.rules.ttl
                last = max(last, size)
        return Bill(read=read, write=last - read, fresh=total - last)


def _chain(pieces: Sequence[Piece]) -> list[tuple[bytes, int]]:
    """For each piece, what identifies the prompt up to its end, and its tokens up to there."""
    whole = hashlib.blake2b(digest_size=16)
    size = 0
    chain: list[tuple[bytes, int]] = []
    for piece in pieces:
        whole.update(piece.digest)
        size += piece.tokens
        chain.append((whole.digest(), size))
    return chain
