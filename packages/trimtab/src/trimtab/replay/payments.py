"""Add up what recorded calls cost at list prices, and what of it could have been avoided.

It reads one conversation after the other and keeps no message, so any number of logs fits.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.engine.log.event import Usage, add_usage
from trimtab.engine.log.message import Message
from trimtab.engine.tokens.cost import CostParts, compute_cost_parts
from trimtab.engine.tokens.counter import estimate_message_tokens, estimate_tokens_by_bytes
from trimtab.models.catalog import find_model_info
from trimtab.replay.cache_breaks import BreakCause, CacheBreak, find_cache_breaks
from trimtab.replay.selection import RecordedConversation

LARGE_RESULT_TOKENS = 8_000
"""A result above this many tokens is worth capping."""
CAPPED_RESULT_TOKENS = 2_000
"""Tokens that a capped result keeps: its beginning and its end."""
_CHARS_PER_TOKEN = 4
_NO_COST = CostParts(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Payment:
    """What calls have cost."""

    sessions: set[str] = field(default_factory=set[str])
    """The ids of the sessions."""
    calls: int = 0
    """Calls with usage."""
    calls_without_usage: int = 0
    """Calls for which the log has no usage. They are in no other figure."""
    calls_without_price: int = 0
    """Calls of models whose price is unknown. They are in `usage`, but not in `dollars`."""
    usage: Usage = field(default_factory=lambda: Usage(input=0))
    """Tokens."""
    dollars: CostParts = _NO_COST
    """US dollars at list prices."""

    @property
    def total(self) -> float:
        """US dollars for input and output."""
        return sum(self.dollars)

    def add(self, other: Payment) -> None:
        self.sessions |= other.sessions
        self.calls += other.calls
        self.calls_without_usage += other.calls_without_usage
        self.calls_without_price += other.calls_without_price
        self.usage = add_usage(self.usage, other.usage)
        self.dollars = _add_costs(self.dollars, other.dollars)

    def to_json(self) -> dict[str, Any]:
        """Return plain figures under plain names."""
        usage = self.usage
        return {
            "sessions": len(self.sessions),
            "calls": self.calls,
            "calls_without_usage": self.calls_without_usage,
            "calls_without_price": self.calls_without_price,
            "dollars": {**self.dollars._asdict(), "total": self.total},
            "tokens": {
                "fresh": usage.input - usage.cache_read - usage.cache_write,
                "cache_read": usage.cache_read,
                "cache_write": usage.cache_write - usage.cache_write_long,
                "cache_write_long": usage.cache_write_long,
                "output": usage.output,
            },
        }


@dataclass(slots=True)
class Loss:
    """What one kind of avoidable cost adds up to."""

    count: int = 0
    """Calls or results."""
    tokens: int = 0
    """Tokens that were paid more than once, or that a cap would have removed."""
    dollars: float = 0.0
    """US dollars at list prices."""

    def add(self, tokens: int, dollars: float) -> None:
        self.count += 1
        self.tokens += tokens
        self.dollars += dollars


@dataclass(slots=True)
class ToolUse:
    """One tool, over all sessions whose log shows its definition."""

    sessions: set[str] = field(default_factory=set[str])
    """Sessions that defined it."""
    calls: int = 0
    """Calls of the tool."""
    size: int = 0
    """Tokens of its definition, the largest if sessions differ."""
    tokens: int = 0
    """Tokens of its definition in all model calls."""
    dollars: float = 0.0
    """What they cost at the price of cache reads."""


@dataclass(slots=True)
class DefinedTools:
    """The tools of the sessions whose logs show definitions."""

    model_calls: int = 0
    """Model calls of these sessions."""
    by_name: dict[str, ToolUse] = field(default_factory=dict[str, ToolUse])

    def list_never_called(self) -> list[tuple[str, ToolUse]]:
        """Return the tools that no session called, the one that cost most first."""
        unused = [(name, use) for name, use in self.by_name.items() if not use.calls]
        return sorted(unused, key=lambda pair: (-pair[1].dollars, -pair[1].size, pair[0]))


@dataclass(slots=True)
class Payments:
    """Everything that was paid for, by the kind of session."""

    by_kind: dict[str, Payment] = field(default_factory=dict[str, Payment])
    """Payments by the client that recorded the session."""
    breaks: dict[BreakCause, Loss] = field(default_factory=dict[BreakCause, Loss])
    """What cache breaks have cost, by cause."""
    large_results: Loss = field(default_factory=Loss)
    """What the results above the cap have cost beyond it."""
    tools: DefinedTools = field(default_factory=DefinedTools)
    heads: list[int] = field(default_factory=list[int])
    """Tokens of system prompt and tools of each session, by the usage of its first call."""
    seen_replies: set[str] = field(default_factory=set[str])
    """Ids of replies already counted. A resumed session repeats its past."""

    @property
    def total(self) -> Payment:
        """All payments together."""
        total = Payment()
        for payment in self.by_kind.values():
            total.add(payment)
        return total

    def add(self, conversation: RecordedConversation) -> Payment:
        """Add one conversation, and return what was paid for it and not counted before."""
        payment = self._price_calls(conversation)
        self.by_kind.setdefault(conversation.kind, Payment()).add(payment)
        if payment.calls:
            for one in find_cache_breaks(conversation).values():
                self._add_break(conversation, one)
            self._add_large_results(conversation)
            self._add_head(conversation)
        self._add_tools(conversation)
        return payment

    def _price_calls(self, conversation: RecordedConversation) -> Payment:
        payment = Payment(sessions={conversation.session})
        for index, message in enumerate(conversation.messages):
            call = conversation.recorded.get(index)
            if message.role != "assistant":
                continue
            if call is None or call.usage is None:
                payment.calls_without_usage += 1
                continue
            if call.reply_id is not None:
                if call.reply_id in self.seen_replies:
                    continue
                self.seen_replies.add(call.reply_id)
            usage = with_believed_output(call.usage, message)
            parts = price_usage(usage, conversation, index)
            payment.calls += 1
            payment.calls_without_price += parts is None
            payment.usage = add_usage(payment.usage, usage)
            payment.dollars = _add_costs(payment.dollars, parts or _NO_COST)
        return payment

    def _add_break(self, conversation: RecordedConversation, one: CacheBreak) -> None:
        usage = conversation.usage[one.index]
        write = one.tokens if usage.cache_write else 0
        long = write if usage.cache_write_long * 2 > usage.cache_write else 0
        again = Usage(input=one.tokens, cache_write=write, cache_write_long=long)
        read = Usage(input=one.tokens, cache_read=one.tokens)
        extra = _price_input(again, conversation, one.index) - _price_input(
            read, conversation, one.index
        )
        self.breaks.setdefault(one.cause, Loss()).add(one.tokens, max(0.0, extra))

    def _add_large_results(self, conversation: RecordedConversation) -> None:
        """Add what each large result has cost beyond a cap: one write, then a read in each call."""
        usage = conversation.usage
        last, calls_left = max(usage, default=0), len(usage)
        for index, message in enumerate(conversation.messages):
            calls_left -= index in usage
            for result in message.results:
                tokens = len(result.text) // _CHARS_PER_TOKEN
                if tokens <= LARGE_RESULT_TOKENS or not calls_left:
                    continue
                saved_tokens = tokens - CAPPED_RESULT_TOKENS
                write_usage = Usage(input=saved_tokens, cache_write=saved_tokens)
                read = Usage(input=saved_tokens, cache_read=saved_tokens)
                dollars = _price_input(write_usage, conversation, last) + (
                    calls_left - 1
                ) * _price_input(read, conversation, last)
                self.large_results.add(saved_tokens, dollars)

    @property
    def head(self) -> int | None:
        """Tokens of system prompt and tools, in the middle one of the sessions."""
        return round(statistics.median(self.heads)) if self.heads else None

    def _add_head(self, conversation: RecordedConversation) -> None:
        first = min(conversation.usage)
        if conversation.part == 1:
            before = sum(map(estimate_message_tokens, conversation.messages[:first]))
            self.heads.append(max(0, conversation.usage[first].input - before))

    def _add_tools(self, conversation: RecordedConversation) -> None:
        tools = {name: tool for tool in conversation.tools if (name := _tool_name(tool))}
        if not tools or not conversation.calls:
            return
        names_called = Counter(
            call.name for message in conversation.messages for call in message.calls
        )
        last = max(conversation.usage, default=0)
        self.tools.model_calls += conversation.calls
        for name, tool in tools.items():
            size = estimate_tokens_by_bytes(str(tool))
            read = Usage(input=size, cache_read=size)
            use = self.tools.by_name.setdefault(name, ToolUse())
            use.sessions.add(conversation.session)
            use.calls += names_called[name]
            use.size = max(use.size, size)
            use.tokens += conversation.calls * size
            use.dollars += conversation.calls * _price_input(read, conversation, last)

    def to_json(self) -> dict[str, Any]:
        """Return plain figures under plain names."""
        return {
            "paid": {
                **self.total.to_json(),
                "by_kind": {kind: payment.to_json() for kind, payment in self.by_kind.items()},
            },
            "cache_breaks": {
                cause: {"calls": loss.count, "tokens": loss.tokens, "dollars": loss.dollars}
                for cause, loss in self.breaks.items()
            },
            "large_results": {
                "results": self.large_results.count,
                "tokens": self.large_results.tokens,
                "dollars": self.large_results.dollars,
            },
            "head_tokens": self.head,
            "tools": {
                "defined": len(self.tools.by_name),
                "to_remove": {
                    name: {
                        "tokens": use.size,
                        "sessions": len(use.sessions),
                        "dollars": use.dollars,
                    }
                    for name, use in self.tools.list_never_called()
                },
            },
        }


def with_believed_output(usage: Usage, reply: Message) -> Usage:
    """Return usage with at least the tokens of the reply.

    Some versions of Claude Code record the count at the start of a reply, which is 1 to 9.
    """
    estimate = estimate_message_tokens(reply)
    if usage.output * 2 >= estimate:
        return usage
    return add_usage(usage, Usage(input=0, output=estimate - usage.output))


def price_usage(usage: Usage, conversation: RecordedConversation, index: int) -> CostParts | None:
    """Return the list price of one call. None if the model's price is unknown."""
    call = conversation.recorded.get(index)
    model = (call.model if call else None) or conversation.model
    prices = _find_prices(model) if model else None
    if prices is None:
        return None
    at = conversation.times[index] if conversation.times is not None else 0.0
    return compute_cost_parts(usage, prices, at=at)


@lru_cache(maxsize=256)
def _find_prices(model: str) -> Mapping[str, Any] | None:
    """Return a model's entry with the prices of every day."""
    info = find_model_info(model, at=0.0)
    return None if info is None else info.to_json()


def _price_input(usage: Usage, conversation: RecordedConversation, index: int) -> float:
    return sum(price_usage(usage, conversation, index) or _NO_COST)


def _add_costs(first: CostParts, second: CostParts) -> CostParts:
    return CostParts(*(one + other for one, other in zip(first, second, strict=True)))


def _tool_name(tool: Mapping[str, Any]) -> str:
    function = dict_or_none(tool.get("function")) or tool
    return str(function.get("name") or "")
