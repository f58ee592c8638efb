"""A recorded conversation, whatever format it was recorded in.

Which conversations are replayed: long enough, one half of them, so many at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.log.event import Usage
from trimtab.log.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    id: str
    """By which reports name it, and by which halves are split."""
    source: str
    """Where it comes from: the file, or the agent that recorded it."""
    messages: tuple[Message, ...]
    """All that was said after the system prompt, in order."""
    system: tuple[Message, ...] = ()
    """The system prompt, where one was recorded."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tool definitions, where they were recorded."""
    times: tuple[float, ...] | None = None
    """Seconds since the epoch, one for each message; None where none were recorded."""
    usage: Mapping[int, Usage] | None = None
    """By message index: what the provider reported for the call that produced it."""

    model: str | None = None
    """Who answered last, where a log of our own says so."""
    window: int | None = None
    """Tokens that it took, input and output together, by the same log."""

    @property
    def calls(self) -> int:
        """Model calls: one for each assistant message."""
        return sum(1 for message in self.messages if message.role == "assistant")


CorpusHalf = Literal["all", "even", "odd"]
MIN_UNIQUE_CALL_ID_CHARS = 16
"""Characters from which on a tool-call id is taken for unique; shorter ones are counters."""


def select_conversations(
    conversations: Iterable[RecordedConversation],
    *,
    min_calls: int = 1,
    half: CorpusHalf = "all",
    limit: int | None = None,
) -> list[RecordedConversation]:
    """The conversations that are wanted; a limit takes those whose ids have the smallest hashes."""
    found = list(conversations)
    if half != "all":
        sides = assign_corpus_halves(found)
        found = [one for one, side in zip(found, sides, strict=True) if side == half]
    found = [one for one in found if one.calls >= max(1, min_calls)]
    if limit is not None and limit < len(found):
        chosen = sorted(found, key=lambda one: _hash_text(one.id))[:limit]
        kept = {id(one) for one in chosen}
        found = [one for one in found if id(one) in kept]
    return found


def assign_corpus_halves(conversations: Sequence[RecordedConversation]) -> list[CorpusHalf]:
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
                if len(call.id) >= MIN_UNIQUE_CALL_ID_CHARS:
                    parent[root(index)] = root(owner.setdefault(call.id, index))
    smallest: dict[int, str] = {}
    for index, conversation in enumerate(conversations):
        key = root(index)
        smallest[key] = min(smallest.get(key, conversation.id), conversation.id)
    return [
        "odd" if _hash_text(smallest[root(i)]) % 2 else "even" for i in range(len(conversations))
    ]


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
