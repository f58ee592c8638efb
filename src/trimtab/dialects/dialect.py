"""What a wire format must know: reading, writing, rendering and refusing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.core.event import Usage
from trimtab.core.message import Message
from trimtab.core.prompt import RENDERER, Block, Join, Prompt

Wire = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
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


class Gathering(Protocol):
    """A streamed reply as it arrives."""

    @property
    def expected(self) -> str:
        """What its events look like, and whence they come."""
        ...

    @property
    def begun(self) -> bool:
        """Whether one of the events so far was of this dialect."""
        ...

    def feed(self, event: Wire) -> None:
        """Take the next stream event."""
        ...

    def reply(self) -> Wire | None:
        """The whole reply as the API would have returned it unstreamed; None until it is whole."""
        ...


class Dialect(Protocol):
    """One wire format. Everything here is pure; implementations are modules of functions."""

    @property
    def name(self) -> str:
        """As settings and `Message.origin` name it."""
        ...

    @property
    def system_notices(self) -> bool:
        """Whether a message of the system role may stand among the others."""
        ...

    @property
    def join(self) -> Join | None:
        """How summary and notice become one with a user's message behind them, from renderer 3 on;
        None where they stand for themselves, in the roles that `system_notices` says."""
        ...

    def read(self, wire: Wire) -> Message:
        """One wire message or item."""
        ...

    def read_history(self, wires: Sequence[Wire]) -> list[Message]:
        """A list of wire messages or items; the items of one assistant reply become one message."""
        ...

    def write_history(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The inverse of `read_history`: equal dicts for messages that come from this dialect."""
        ...

    def read_reply(self, wire: Wire) -> Reply:
        """A whole unstreamed reply body."""
        ...

    def is_reply(self, wire: Wire) -> bool:
        """Whether a dict is a whole reply body of this dialect."""
        ...

    def gather(self) -> Gathering:
        """An empty gathering of a streamed reply."""
        ...

    def read_system(self, system: str | Sequence[Wire]) -> tuple[Message, ...]:
        """A system prompt as a caller gives it."""
        ...

    def write_tools(self, tools: Sequence[Wire]) -> list[dict[str, Any]]:
        """Tool definitions in this dialect's form, from any known one.

        What a provider runs itself has no other form, and is passed on as it is. Raises ValueError
        for what is no definition, a name that comes twice, or another provider's own tool.
        """
        ...

    def blocks(
        self, messages: Sequence[Message], renderer: int = RENDERER, model: str = "", /
    ) -> list[Block]:
        """One round rendered: a single message, or an assistant's calls, their results in call
        order, then what else was said. What an older `renderer` has sent is rendered as it did.
        What `model` is known to refuse is left out; an empty name refuses nothing."""
        ...

    def request(self, prompt: Prompt) -> dict[str, Any]:
        """Keyword arguments for the provider's SDK."""
        ...

    def check(self, request: Mapping[str, Any]) -> list[str]:
        """What the provider would refuse, in words; empty for a valid request."""
        ...
