"""A recorded conversation in one form for all formats.

Select the conversations to replay by length and by number.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.locations import find_client


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """What a log says about one model call."""

    usage: Usage | None = None
    """What the provider reported."""
    model: str | None = None
    """The model that answered."""
    reply_id: str | None = None
    """The provider's id of the reply. A resumed session repeats its past under the same ids."""
    edited: bool = False
    """Whether client or provider had removed text from the prompt since the call before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    """One session, or the part of a session between two compactions by its client."""

    id: str
    """The id by which reports name it. No other conversation has it."""
    part: int = 1
    """The number of the part, from 1. A compaction begins the next part."""
    kind: str = "messages"
    """The client that recorded it, such as `Claude Code`, or `messages`."""
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
    recorded: Mapping[int, RecordedCall] = field(default_factory=dict[int, RecordedCall])
    """What the log says about the call that produced each message, by message index."""
    model: str | None = None
    """The model that answered last, if the recording names it."""
    window: int | None = None
    """The model's window in tokens, input and output together, if a log of Trimtab names it."""

    @property
    def calls(self) -> int:
        """Model calls: one for each assistant message."""
        return sum(1 for message in self.messages if message.role == "assistant")

    @property
    def usage(self) -> dict[int, Usage]:
        """What the provider reported for the call that produced each message, by message index."""
        return {index: call.usage for index, call in self.recorded.items() if call.usage}

    @property
    def client(self) -> str:
        """The client that recorded it, or whose subagent did."""
        return find_client(self.kind)

    @property
    def session(self) -> str:
        """The id of the whole session."""
        return self.id.removesuffix(_part_suffix(self.part))


def name_part(session: str, part: int) -> str:
    """Return the id of one part of a session."""
    return f"{session}{_part_suffix(part)}"


def _part_suffix(part: int) -> str:
    return "" if part == 1 else f"#{part}"


class SessionSample:
    """Conversations taken at random: those whose ids have the smallest hashes.

    Of those that are left out, nothing stays in memory.
    """

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._kept: list[tuple[int, RecordedConversation]] = []
        self._calls = 0

    def add(self, conversation: RecordedConversation) -> None:
        """Take a conversation, or leave it out if others before it have enough calls."""
        if not conversation.calls:
            return
        insort(self._kept, (_hash_text(conversation.id), conversation), key=itemgetter(0))
        self._calls += conversation.calls
        self._drop_above(self._max_calls)

    def take(self, max_calls: int) -> list[RecordedConversation]:
        """Return as many conversations as it takes for this many calls."""
        self._drop_above(max_calls)
        return [conversation for _, conversation in self._kept]

    def _drop_above(self, max_calls: int) -> None:
        while self._calls - self._kept[-1][1].calls >= max_calls:
            self._calls -= self._kept.pop()[1].calls


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
