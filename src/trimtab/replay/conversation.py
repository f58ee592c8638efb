"""A recorded conversation, whatever format it was recorded in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.core.event import Usage
from trimtab.core.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
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
