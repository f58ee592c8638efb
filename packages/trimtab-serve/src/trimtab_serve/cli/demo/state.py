"""What the demo shows at one moment."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trimtab.engine.policy.presets import PolicyName
from trimtab.engine.prompt.report import ContextReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCallTokens:
    """One model call."""

    full_tokens: int
    """Tokens of everything said so far, by the provider's own count."""
    sent_tokens: int = 0
    """Tokens that were sent, as the provider reported them; 0 before it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEdit:
    """An edit."""

    handle: str
    """The handle that recalls it."""
    result_word: str
    """`masked`, `truncated`, `dropped` or `summarised`."""
    subject: str
    """The tool whose result it was, or `messages`."""
    tokens: int
    """Tokens that the edit saved, estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLine:
    """One line of the conversation."""

    kind: str
    """`note`, `user`, `agent`, `call`, `result`, `recall` or `mark`."""
    text: str
    """The text to show."""


@dataclass(slots=True, kw_only=True)
class DemoState:
    policy: PolicyName
    """The policy that decides what to hide."""
    window: int
    """Size of the model's window in tokens."""
    turn: int = 0
    """The current turn of the story, from 1."""
    turns: int = 0
    """Number of turns in the story."""
    lines: deque[DemoLine] = field(default_factory=lambda: deque[DemoLine](maxlen=60))
    """The newest lines of the conversation."""
    partial_reply: str = ""
    """The part of the reply that has arrived."""
    report: ContextReport | None = None
    """The context report of the newest request."""
    calls: list[DemoCallTokens] = field(default_factory=list[DemoCallTokens])
    """Model calls, oldest first."""
    edits: list[DemoEdit] = field(default_factory=list[DemoEdit])
    """All edits, oldest first."""
    recalled_handle: str = ""
    """The handle that the agent looked up."""
    cost: float = 0.0
    """Cost in US dollars, from the provider's reported usage."""
    full_cost: float = 0.0
    """Computed cost in US dollars if everything had been sent."""
    refused_requests: int = 0
    """Number of requests that the provider refused."""

    @property
    def sent_tokens(self) -> int:
        """Input tokens of all calls."""
        return sum(call.sent_tokens for call in self.calls)

    @property
    def full_tokens(self) -> int:
        """Input tokens of all calls if everything had been sent."""
        return sum(call.full_tokens for call in self.calls)

    @property
    def hidden_tokens(self) -> int:
        """Tokens that are hidden now, estimated."""
        return sum(tokens for _, tokens in self.report.hidden.values()) if self.report else 0

    @property
    def oversized_calls(self) -> int:
        """Calls that would not have fitted if everything had been sent."""
        return sum(call.full_tokens > self.window for call in self.calls)
