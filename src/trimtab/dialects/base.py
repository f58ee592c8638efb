"""What a wire format must know: reading, writing, rendering and refusing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.log.event import JsonMapping, Usage
from trimtab.log.message import Message
from trimtab.prompt.render import RENDERER_VERSION, JoinText, Prompt, PromptBlock

WireObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A model's answer, read from the wire."""

    message: Message
    """What the model said."""
    usage: Usage | None = None
    """What the provider reported; None where it did not."""
    stop: str | None = None
    """Why the model stopped, in the provider's word."""
    id: str | None = None
    """The provider's id of the reply."""
    paused: bool = False
    """Whether it is to be sent back as it is, for the model to go on."""
    counted: int | None = None
    """Tokens of the request as it was sent, where `usage.input` is another figure; 0 where the
    reply does not tell them."""
    cache_diagnosis: JsonMapping | None = None
    """What the provider says of its prompt cache: `reason`, and for a miss `missed_tokens`."""
    server_edits: JsonMapping | None = None
    """By kind of edit that the provider made itself: the tokens that it took out. None where the
    reply does not tell."""


class ReplyAccumulator(Protocol):
    """A streamed reply as it arrives."""

    @property
    def expected_events(self) -> str:
        """What its events look like, and whence they come."""
        ...

    @property
    def has_started(self) -> bool:
        """Whether one of the events so far was of this dialect."""
        ...

    def feed(self, event: WireObject) -> None:
        """Take the next stream event."""
        ...

    def reply_body(self) -> WireObject | None:
        """The whole reply as the API would have returned it unstreamed; None until it is whole."""
        ...


class Dialect(Protocol):
    """One wire format. Everything here is pure; implementations are modules of functions."""

    @property
    def name(self) -> str:
        """As settings and `Message.origin` name it."""
        ...

    @property
    def allows_system_notices(self) -> bool:
        """Whether a message of the system role may stand among the others."""
        ...

    @property
    def prepend_text(self) -> JoinText | None:
        """How summary and notice become one with a user's message behind them, from renderer 3 on;
        None where they stand for themselves, in the roles that `system_notices` says."""
        ...

    def parse_message(self, wire: WireObject) -> Message:
        """One wire message or item."""
        ...

    def parse_history(self, wire_messages: Sequence[WireObject]) -> list[Message]:
        """A list of wire messages or items; the items of one assistant reply become one message."""
        ...

    def find_message_starts(self, wire_messages: Sequence[WireObject]) -> list[int]:
        """The index of the first item of each message that `parse_history` reads."""
        ...

    def serialize_history(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The inverse of `read_history`: equal dicts for messages that come from this dialect."""
        ...

    def parse_reply(self, reply_body: WireObject) -> ModelReply:
        """A whole unstreamed reply body."""
        ...

    def is_reply_body(self, value: WireObject) -> bool:
        """Whether a dict is a whole reply body of this dialect."""
        ...

    def create_reply_accumulator(self) -> ReplyAccumulator:
        """An empty gathering of a streamed reply."""
        ...

    def parse_system_messages(
        self, system_prompt: str | Sequence[WireObject]
    ) -> tuple[Message, ...]:
        """A system prompt as a caller gives it."""
        ...

    def render_tools(self, tools: Sequence[WireObject]) -> list[dict[str, Any]]:
        """Tool definitions in this dialect's form, from any known one.

        What a provider runs itself has no other form, and is passed on as it is. Raises ValueError
        for what is no definition, a name that comes twice, or another provider's own tool.
        """
        ...

    def render_round_blocks(
        self,
        round_messages: Sequence[Message],
        renderer_version: int = RENDERER_VERSION,
        model: str = "",
        /,
    ) -> list[PromptBlock]:
        """One round rendered: a single message, or an assistant's calls, their results in call
        order, then what else was said. What an older `renderer` has sent is rendered as it did.
        What `model` is known to refuse is left out; an empty name refuses nothing."""
        ...

    def build_request_kwargs(self, prompt: Prompt) -> dict[str, Any]:
        """Keyword arguments for the provider's SDK."""
        ...

    def find_request_errors(self, request: Mapping[str, Any]) -> list[str]:
        """What the provider would refuse, in words; empty for a valid request."""
        ...
