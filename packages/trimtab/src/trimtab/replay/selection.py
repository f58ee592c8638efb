"""A recorded conversation in one form for all formats.

Select the conversations to replay by length, by half and by number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    """A conversation as it was recorded."""

    id: str
    """The id by which reports name it and halves are split."""
    source: str
    """Its origin: the file, or the agent that recorded it."""
    messages: tuple[Message, ...]
    """All messages after the system prompt, in order."""
    system: tuple[Message, ...] = ()
    """The system prompt, if it was recorded."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tool definitions, if they were recorded."""
    times: tuple[float, ...] | None = None
    """Seconds since the epoch, one for each message. None if they were not recorded."""
    usage: Mapping[int, Usage] | None = None
    """What the provider reported for the call that produced each message, by message index."""

    model: str | None = None
    """The model that answered last, if the recording names it."""
    window: int | None = None
    """The model's window in tokens, input and output together, if a log of Trimtab names it."""

    @property
    def calls(self) -> int:
        """Model calls: one for each assistant message."""
        return sum(1 for message in self.messages if message.role == "assistant")


CorpusHalf = Literal["all", "even", "odd"]
"""The conversations that are taken: all of them, or one half by their ids."""
MIN_UNIQUE_CALL_ID_CHARS = 16
"""Tool-call ids of at least this length count as unique. Shorter ones are counters."""


def select_conversations(
    conversations: Iterable[RecordedConversation],
    *,
    min_calls: int = 1,
    half: CorpusHalf = "all",
    limit: int | None = None,
) -> list[RecordedConversation]:
    """Select conversations to replay.

    Args:
        conversations: The conversations to choose from.
        min_calls: Leave out conversations with fewer model calls.
        half: `even` or `odd` for one half of them, or `all`. Conversations that share tool calls
            are in the same half.
        limit: Maximum number of conversations. Those whose ids have the smallest hashes are kept.
    """
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
    """Return the half of each, by the SHA-256 of the smallest id among those it shares calls with.

    Resumed and forked sessions share tool-call ids. What is in one half must not be in the other.
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
