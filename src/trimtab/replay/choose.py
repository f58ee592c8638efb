"""Which conversations are replayed: long enough, one half of them, so many at most."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

from trimtab.replay.conversation import Conversation

Half = Literal["all", "even", "odd"]
TELLING = 16
"""Characters from which on a tool-call id is taken for unique; shorter ones are counters."""


def choose(
    conversations: Iterable[Conversation],
    *,
    min_calls: int = 1,
    half: Half = "all",
    limit: int | None = None,
) -> list[Conversation]:
    """The conversations that are wanted; a limit takes those whose ids have the smallest hashes."""
    found = list(conversations)
    if half != "all":
        sides = halves(found)
        found = [one for one, side in zip(found, sides, strict=True) if side == half]
    found = [one for one in found if one.calls >= max(1, min_calls)]
    if limit is not None and limit < len(found):
        chosen = sorted(found, key=lambda one: _hash(one.id))[:limit]
        kept = {id(one) for one in chosen}
        found = [one for one in found if id(one) in kept]
    return found


def halves(conversations: Sequence[Conversation]) -> list[Half]:
    """The half of each: by the SHA-256 of its id, or of the smallest id it shares calls with.

    Resumed and forked sessions share tool-call ids; what one half has seen must not be in the
    other.
    """
    parent = list(range(len(conversations)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    owner: dict[str, int] = {}
    for index, conversation in enumerate(conversations):
        for message in conversation.messages:
            for call in message.calls:
                if len(call.id) >= TELLING:
                    parent[root(index)] = root(owner.setdefault(call.id, index))
    smallest: dict[int, str] = {}
    for index, conversation in enumerate(conversations):
        key = root(index)
        smallest[key] = min(smallest.get(key, conversation.id), conversation.id)
    return ["odd" if _hash(smallest[root(i)]) % 2 else "even" for i in range(len(conversations))]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
