"""The two halves of the corpus, by the ids of its conversations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

from trimtab.replay.selection import RecordedConversation

CorpusHalf = Literal["all", "even", "odd"]
"""The conversations that are taken: all of them, or one half by their ids."""
MIN_UNIQUE_CALL_ID_CHARS = 16
"""Tool-call ids of at least this length count as unique. Shorter ones are counters."""


def take_half(
    conversations: Iterable[RecordedConversation], half: CorpusHalf
) -> list[RecordedConversation]:
    """Return the conversations of a half. Those that share tool calls are in the same one."""
    every = list(conversations)
    if half == "all":
        return every
    return [one for one, own in zip(every, assign_corpus_halves(every), strict=True) if own == half]


def assign_corpus_halves(conversations: Sequence[RecordedConversation]) -> list[CorpusHalf]:
    """Return the half of each, by the SHA-256 of the smallest id among those it shares calls with.

    Resumed and forked sessions share tool-call ids. What is in one half must not be in the other.
    The parts of a session are in one half.
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
                if len(call.id) >= MIN_UNIQUE_CALL_ID_CHARS:
                    parent[root(index)] = root(owner.setdefault(call.id, index))
    smallest: dict[int, str] = {}
    for index, conversation in enumerate(conversations):
        key = root(index)
        smallest[key] = min(smallest.get(key, conversation.session), conversation.session)
    return [
        "odd" if _hash_text(smallest[root(i)]) % 2 else "even" for i in range(len(conversations))
    ]


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
