"""What there is to see of the demo at one moment."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trimtab.policy.presets import PolicyName
from trimtab.prompt.context_report import ContextReport


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
    """By what it is recalled."""
    result_word: str
    """`masked`, `truncated`, `dropped` or `summarised`."""
    subject: str
    """The tool whose result it was, or `messages`."""
    tokens: int
    """That it took, estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLine:
    """Of the conversation."""

    kind: str
    """`note`, `user`, `agent`, `call`, `result`, `recall` or `mark`."""
    text: str
    """What is shown."""


@dataclass(slots=True, kw_only=True)
class DemoState:
    policy: PolicyName
    """What decides."""
    window: int
    """Tokens that the model takes."""
    turn: int = 0
    """Of the story, from 1."""
    turns: int = 0
    """That the story has."""
    lines: deque[DemoLine] = field(default_factory=lambda: deque[DemoLine](maxlen=60))
    """The newest of the conversation."""
    partial_reply: str = ""
    """The reply as far as it has come."""
    report: ContextReport | None = None
    """Of the newest request."""
    calls: list[DemoCallTokens] = field(default_factory=list[DemoCallTokens])
    """Model calls, oldest first."""
    edits: list[DemoEdit] = field(default_factory=list[DemoEdit])
    """All edits, oldest first."""
    recalled_handle: str = ""
    """The handle that the agent looked up."""
    cost: float = 0.0
    """US dollars by the provider's report."""
    full_cost: float = 0.0
    """US dollars that sending everything would have cost, computed."""
    refused_requests: int = 0
    """Requests that the provider did not take."""

    @property
    def sent_tokens(self) -> int:
        """Input tokens of all calls."""
        return sum(call.sent_tokens for call in self.calls)

    @property
    def full_tokens(self) -> int:
        """Input tokens of all calls, had everything been sent."""
        return sum(call.full_tokens for call in self.calls)

    @property
    def hidden_tokens(self) -> int:
        """Tokens that are hidden now, estimated."""
        return sum(tokens for _, tokens in self.report.hidden.values()) if self.report else 0

    @property
    def oversized_calls(self) -> int:
        """Calls that would not have fitted, had everything been sent."""
        return sum(call.full_tokens > self.window for call in self.calls)
