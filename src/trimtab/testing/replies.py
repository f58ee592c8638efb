"""What a scripted model says, in no wire's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.log.event import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call that the model makes."""

    name: str
    """The tool's."""
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    """An object; or a text, sent as it is even where it is not JSON."""
    id: str | None = None
    """None for one that is made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply: thinking, then text, then calls, as far as they are there."""

    text: str = ""
    """What it says."""
    calls: tuple[ScriptedCall, ...] = ()
    """Made in parallel."""
    thinking: str | None = None
    """Signed thinking, a reasoning item or `reasoning_content`, as the dialect has it."""
    redacted: bool = False
    """Whether Anthropic hides the thinking from us, too."""
    stop: str | None = None
    """Why it stopped, in the provider's word; None for what follows from the rest."""
    usage: Usage | None = None
    """What is reported; None for what is counted."""


class SeededIds:
    """Ids that no other server or provider hands out, and the same ones for the same seed."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.count = 0

    def __call__(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.seed}{self.count:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMetadata:
    """What a reply carries beside its answer."""

    model: str
    """As the request named it."""
    ids: SeededIds
    """Where ids come from."""
    usage: Usage
    """What is reported."""
    thinking_tokens: int = 0
    """Output tokens that went into thinking, included in the usage."""
    hour_cache_tokens: int = 0
    """Tokens written to the cache for an hour, included in the usage's writes."""
    created: int = 0
    """Seconds since the epoch."""
    previous_signature: str = ""
    """The seal of the thinking that the request ended with; empty for none."""
    encrypts_reasoning: bool = True
    """Whether reasoning comes with its encrypted content."""
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was asked: some of it is repeated in the reply."""
    applied_edits: Sequence[Mapping[str, Any]] | None = None
    """Edits that the provider made itself; None where none were asked for."""
    compacted_tokens: int = 0
    """Tokens that were read for a compaction; 0 where none was made."""


def split_for_streaming(text: str, max_pieces: int = 8) -> list[str]:
    """A text as a stream carries it; one empty piece for an empty one."""
    size = max(8, -(-len(text) // max_pieces))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
