"""The interface of a wire format: reading, writing, rendering and checking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.engine.log.event import JsonMapping, Usage
from trimtab.engine.log.message import Message
from trimtab.engine.prompt.render import JoinText, Prompt, PromptBlock, SentBlocks

WireObject = Mapping[str, Any]
"""A JSON object of a provider's API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A model's answer, read from the wire."""

    message: Message
    """The message."""
    usage: Usage | None = None
    """The usage that the provider reported; None if it did not."""
    stop: str | None = None
    """Why the model stopped, as the provider names it."""
    id: str | None = None
    """The provider's id of the reply."""
    paused: bool = False
    """Whether to send it back unchanged, so that the model continues."""
    counted: int | None = None
    """Tokens of the request as it was sent, if `usage.input` is another figure; 0 if the reply does
    not say."""
    cache_diagnosis: JsonMapping | None = None
    """What the provider says about its prompt cache: `reason`, and for a miss `missed_tokens`."""
    server_edits: JsonMapping | None = None
    """By kind of edit that the provider made itself: the tokens that it removed. None if the reply
    does not say."""


class ReplyAccumulator(Protocol):
    """A streamed reply as it arrives."""

    @property
    def expected_events(self) -> str:
        """A description of its events and their source."""
        ...

    @property
    def has_started(self) -> bool:
        """Whether one of the events so far belonged to this dialect."""
        ...

    def feed(self, event: WireObject) -> None:
        """Add the next stream event."""
        ...

    def reply_body(self) -> WireObject | None:
        """Return the whole reply as the API would have returned it without streaming; None if it is
        incomplete."""
        ...


class Dialect(Protocol):
    """One wire format. Everything here is pure; implementations are modules of functions."""

    @property
    def name(self) -> str:
        """The name in settings and `Message.origin`."""
        ...

    @property
    def allows_system_notices(self) -> bool:
        """Whether a message with the system role is allowed among the others."""
        ...

    @property
    def prepend_text(self) -> JoinText | None:
        """The function that joins summary and notice to the following user message. None if they
        are separate messages, with the roles that `allows_system_notices` decides."""
        ...

    def parse_message(self, wire: WireObject) -> Message:
        """Read one wire message or item."""
        ...

    def parse_history(self, wire_messages: Sequence[WireObject]) -> list[Message]:
        """Read a list of wire messages or items.

        The items of one assistant reply become one message.
        """
        ...

    def find_message_starts(self, wire_messages: Sequence[WireObject]) -> list[int]:
        """Return the index of the first item of each message that `parse_history` reads."""
        ...

    def serialize_history(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Write messages; the inverse of `parse_history`: equal dicts for messages from this
        dialect."""
        ...

    def parse_reply(self, reply_body: WireObject) -> ModelReply:
        """Read a whole reply body that was not streamed."""
        ...

    def is_reply_body(self, value: WireObject) -> bool:
        """Whether a dict is a whole reply body of this dialect."""
        ...

    def create_reply_accumulator(self) -> ReplyAccumulator:
        """Create an empty accumulator for a streamed reply."""
        ...

    def parse_system_messages(
        self, system_prompt: str | Sequence[WireObject]
    ) -> tuple[Message, ...]:
        """Read a system prompt as a caller gives it."""
        ...

    def render_tools(self, tools: Sequence[WireObject]) -> list[dict[str, Any]]:
        """Convert tool definitions of any known form to this dialect's form.

        A tool that the provider runs itself is passed on unchanged. Raises `ValueError` for an
        invalid definition, a duplicate name, or another provider's own tool.
        """
        ...

    def render_round_blocks(
        self, round_messages: Sequence[Message], model: str = "", /
    ) -> list[PromptBlock]:
        """Render one round: a single message, or an assistant's calls, their results in call order,
        then the other messages. Content that `model` is known to reject is left out; an empty name
        rejects nothing."""
        ...

    def render_sent_blocks(self, prompt: Prompt) -> SentBlocks:
        """Return how `build_request_kwargs` sends the blocks of a prompt."""
        ...

    def must_join(self, first: PromptBlock, second: PromptBlock, model: str, /) -> bool:
        """Whether the provider may refuse two neighbours in separate messages. A request joins
        them."""
        ...

    def join_blocks(
        self, blocks: Sequence[PromptBlock], model: str = "", /
    ) -> list[dict[str, Any]]:
        """Build messages or items of blocks, joined as a request joins them."""
        ...

    def build_request_kwargs(self, prompt: Prompt) -> dict[str, Any]:
        """Build the keyword arguments for the provider's SDK."""
        ...

    def find_request_errors(self, request: Mapping[str, Any]) -> list[str]:
        """List what the provider would reject; empty for a valid request."""
        ...
