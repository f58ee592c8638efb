"""Calls of a replayed conversation, and the setup under which they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.replay.billing import InputBill
from trimtab.replay.client_settings import AS_RECORDED, ClientSettings
from trimtab.replay.needs import NeedCounts

EVERYTHING = "everything"
"""The baseline: each call sends the whole conversation, as its client did."""
MAX_REFETCH_TOKENS = 8_000
"""Maximum tokens of a result that is fetched again. Every policy would cap it at that size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """The settings under which conversations are replayed."""

    name: str
    """The name of what it compares."""
    options: Mapping[str, Any]
    """Options of `Context`: policy, goal, context settings, limits."""
    model: str = "claude-sonnet-4-5"
    """The model whose tokenizer, window and dialect apply."""
    client: ClientSettings = AS_RECORDED
    """What the client is told, if no policy of Trimtab runs."""
    summarise: Callable[[Any, bool], Any] | None = None
    """A verb that adds the summary that the policy wants, or needs if the flag is true. Returns the
    tokens read and written for it. Without it lines of the conversation are the summary."""

    @property
    def sends_everything(self) -> bool:
        """Whether nothing is hidden, not even to fit: what a client without any policy sends."""
        return self.options.get("policy") == EVERYTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """One model call of a replayed conversation."""

    index: int
    """Index of the assistant message that the call produced."""
    at: float
    """Seconds since the conversation's start."""
    tokens: int
    """Estimated input tokens."""
    head: int
    """The part of `tokens` that is system prompt and tools."""
    new: int
    """The part of `tokens` in messages that are newer than the call before."""
    is_cold: bool
    """Whether the pause before it outlived the cache of the first provider, or no call came
    before."""
    bill: Mapping[str, InputBill]
    """How the input was billed, by provider."""
    output: int
    """Estimated tokens of the reply."""
    edits: int
    """Edits made before the call."""
    broke: bool
    """Whether the prompt no longer extended the previous one."""
    summarised: int
    """Tokens that a summariser read before the call. 0 for none."""
    written: int | None = None
    """Tokens that it wrote. None if no model was called, so that the usual number is assumed."""
    needs: NeedCounts
    """The needs of the reply's tool calls, and how many of them the request shows."""
    missing: int
    """Tokens of the results that would have to be fetched again, each counted once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRun:
    """One conversation under one setup."""

    conversation: str
    """The conversation's id."""
    setup: str
    """The setup's name."""
    calls: tuple[ReplayedCall, ...]
    """The calls in order."""
    cannot_fit: int
    """Calls that no edit could make fit. They are left out of `calls`."""
