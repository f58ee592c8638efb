"""The replies of a scripted model, independent of a wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.engine.log.event import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call that the model makes."""

    name: str
    """The name of the tool."""
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    """The arguments: an object, or a text that is sent unchanged even if it is not JSON."""
    id: str | None = None
    """The id of the call. If it is None, an id is made up."""
    namespace: str | None = None
    """The namespace of the tool in Responses. None for a tool that is in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply: thinking, then text, then tool calls. Each part is optional."""

    text: str = ""
    """The text of the reply."""
    calls: tuple[ScriptedCall, ...] = ()
    """The tool calls, made in parallel."""
    thinking: str | None = None
    """The thinking: signed thinking, a reasoning item or `reasoning_content`, depending on the
    dialect."""
    redacted: bool = False
    """Whether Anthropic also hides the thinking from the caller."""
    stop: str | None = None
    """Why the model stopped, in the provider's word. None means what follows from the other
    fields."""
    usage: Usage | None = None
    """The reported usage. If it is None, the tokens are counted."""


class SeededIds:
    """Unique ids. The same seed gives the same ids."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.count = 0

    def __call__(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.seed}{self.count:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMetadata:
    """The parts of a reply in addition to its answer."""

    model: str
    """The model's name as in the request."""
    ids: SeededIds
    """The source of ids."""
    usage: Usage
    """The reported usage."""
    thinking_tokens: int = 0
    """Output tokens used for thinking, included in the usage."""
    hour_cache_tokens: int = 0
    """Tokens written to the cache for an hour, included in the usage's writes."""
    created: int = 0
    """Seconds since the epoch."""
    previous_signature: str = ""
    """The signature of the thinking that the request ended with. Empty if there was none."""
    encrypts_reasoning: bool = True
    """Whether reasoning comes with its encrypted content."""
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The request. Some of it is repeated in the reply."""
    applied_edits: Sequence[Mapping[str, Any]] | None = None
    """Edits that the provider made itself. None if the request did not ask for edits."""
    compacted_tokens: int = 0
    """Tokens that were read for a compaction. 0 if there was none."""


def split_for_streaming(text: str, max_pieces: int = 8) -> list[str]:
    """Split a text as a stream does. An empty text gives one empty piece."""
    size = max(8, -(-len(text) // max_pieces))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
