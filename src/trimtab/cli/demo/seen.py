"""What there is to see of the demo at one moment."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trimtab.core.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One model call."""

    whole: int
    """Tokens of everything said so far, by the provider's own count."""
    input: int = 0
    """Tokens that were sent, as the provider reported them; 0 before it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """An edit."""

    handle: str
    """By what it is recalled."""
    how: str
    """`masked`, `truncated`, `dropped` or `summarised`."""
    what: str
    """The tool whose result it was, or `messages`."""
    tokens: int
    """That it took, estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Of the conversation."""

    who: str
    """`note`, `user`, `agent`, `call`, `result`, `recall` or `mark`."""
    text: str
    """What is shown."""


@dataclass(slots=True, kw_only=True)
class Seen:
    policy: str
    """What decides."""
    window: int
    """Tokens that the model takes."""
    turn: int = 0
    """Of the story, from 1."""
    turns: int = 0
    """That the story has."""
    lines: deque[Line] = field(default_factory=lambda: deque[Line](maxlen=60))
    """The newest of the conversation."""
    said: str = ""
    """The reply as far as it has come."""
    ledger: Ledger | None = None
    """Of the newest request."""
    calls: list[Sent] = field(default_factory=list[Sent])
    """Model calls, oldest first."""
    hidden: list[Hidden] = field(default_factory=list[Hidden])
    """All edits, oldest first."""
    recalled: str = ""
    """The handle that the agent looked up."""
    cost: float = 0.0
    """US dollars by the provider's report."""
    whole_cost: float = 0.0
    """US dollars that sending everything would have cost, computed."""
    refused: int = 0
    """Requests that the provider did not take."""

    @property
    def sent(self) -> int:
        """Input tokens of all calls."""
        return sum(call.input for call in self.calls)

    @property
    def whole(self) -> int:
        """Input tokens of all calls, had everything been sent."""
        return sum(call.whole for call in self.calls)

    @property
    def hiding(self) -> int:
        """Tokens that are hidden now, estimated."""
        return sum(tokens for _, tokens in self.ledger.hidden.values()) if self.ledger else 0

    @property
    def too_large(self) -> int:
        """Calls that would not have fitted, had everything been sent."""
        return sum(call.whole > self.window for call in self.calls)
