"""Add up what recorded calls cost at list prices, and what of it could have been avoided.

It reads one conversation after the other and keeps no message, so any number of logs fits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.engine.log.event import Usage, add_usage
from trimtab.engine.log.message import Message, ToolCall
from trimtab.engine.tokens.cost import CostParts, compute_cost_parts
from trimtab.engine.tokens.counter import estimate_message_tokens, estimate_tokens_by_bytes
from trimtab.models.catalog import find_model_info
from trimtab.replay.cache_breaks import (
    BreakCause,
    CacheBreak,
    find_cache_breaks,
    is_long_lived,
)
from trimtab.replay.selection import RecordedConversation

MAX_FILLINGS = 3
"""Results that are named."""
_CHARS_PER_TOKEN = 4
_FILE_KEYS = ("file_path", "filePath", "path", "notebook_path")
"""Arguments with the file that a tool reads, as coding agents name them."""
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
    lost: float = 0.0
    """The part of `dollars` for text that had been sent before, and was no longer in the cache."""

    @property
    def reread(self) -> float:
        """US dollars for old context: read from the cache, or sent again after it was lost."""
        return self.dollars.cache_read + self.lost

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
        self.lost += other.lost

    def to_json(self) -> dict[str, Any]:
        """Return plain figures under plain names."""
        usage = self.usage
        return {
            "sessions": len(self.sessions),
            "calls": self.calls,
            "calls_without_usage": self.calls_without_usage,
            "calls_without_price": self.calls_without_price,
            "dollars": {
                **self.dollars._asdict(),
                "total": self.total,
                "reread": self.reread,
                "lost": self.lost,
            },
            "tokens": {
                "fresh": usage.input - usage.cache_read - usage.cache_write,
                "cache_read": usage.cache_read,
                "cache_write": usage.cache_write - usage.cache_write_long,
                "cache_write_long": usage.cache_write_long,
                "output": usage.output,
            },
        }


@dataclass(slots=True)
class Filling:
    """Results of one kind in one session: of a tool, and for one file if its calls name one."""

    source: str
    """The log."""
    tool: str
    """The name of the tool."""
    file: str
    """The file that the calls name. Empty if each is on its own."""
    results: int = 0
    """How many there are."""
    tokens: int = 0
    """Their tokens, when they were new."""
    calls: int = 0
    """The calls that read the first of them again."""
    dollars: float = 0.0
    """What they have cost: written once, then read by each call."""


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
    lost: dict[BreakCause, float] = field(default_factory=dict[BreakCause, float])
    """US dollars for sending text again after the cache was lost, by cause."""
    fillings: list[Filling] = field(default_factory=list[Filling])
    """What filled the windows most."""
    by_source: dict[str, float] = field(default_factory=dict[str, float])
    """US dollars by log."""
    tools: DefinedTools = field(default_factory=DefinedTools)
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
        if payment.calls:
            for lost in find_cache_breaks(conversation).values():
                dollars = _price_break(conversation, lost)
                self.lost[lost.cause] = self.lost.get(lost.cause, 0.0) + dollars
                payment.lost += dollars
            fillings = [*self.fillings, *_list_fillings(conversation)]
            self.fillings = sorted(fillings, key=lambda one: -one.dollars)[:MAX_FILLINGS]
        self.by_kind.setdefault(conversation.kind, Payment()).add(payment)
        before = self.by_source.get(conversation.source, 0.0)
        self.by_source[conversation.source] = before + payment.total
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
            "lost": dict(self.lost),
            "fillings": [asdict(filling) for filling in self.fillings],
            "never_called": {
                name: {"tokens": use.size, "sessions": len(use.sessions), "dollars": use.dollars}
                for name, use in self.tools.list_never_called()
            },
        }


def _price_break(conversation: RecordedConversation, lost: CacheBreak) -> float:
    """Return what it cost to send lost text again, beyond reading it from the cache."""
    usage = conversation.usage[lost.index]
    write = lost.tokens if usage.cache_write else 0
    long = write if is_long_lived(usage) else 0
    again = Usage(input=lost.tokens, cache_write=write, cache_write_long=long)
    read = Usage(input=lost.tokens, cache_read=lost.tokens)
    extra = _price_input(again, conversation, lost.index)
    return max(0.0, extra - _price_input(read, conversation, lost.index))


def _list_fillings(conversation: RecordedConversation) -> list[Filling]:
    """Return the results that cost most in one conversation."""
    usage = conversation.usage
    last, calls_left = max(usage), len(usage)
    million = 1_000_000
    write = _price_input(Usage(input=million, cache_write=million), conversation, last) / million
    read = _price_input(Usage(input=million, cache_read=million), conversation, last) / million
    calls: dict[str, ToolCall] = {}
    fillings: dict[tuple[str, str], Filling] = {}
    for index, message in enumerate(conversation.messages):
        calls_left -= index in usage
        calls.update((call.id, call) for call in message.calls)
        for result in message.results:
            tokens = len(result.text) // _CHARS_PER_TOKEN
            call = calls.get(result.call_id)
            if call is None or not calls_left:
                continue
            file = _find_file(call)
            filling = fillings.setdefault(
                (call.name, file or result.call_id),
                Filling(source=conversation.source, tool=call.name, file=file, calls=calls_left),
            )
            filling.results += 1
            filling.tokens += tokens
            filling.dollars += tokens * (write + (calls_left - 1) * read)
    return sorted(fillings.values(), key=lambda one: -one.dollars)[:MAX_FILLINGS]


def _find_file(call: ToolCall) -> str:
    """Return the file that a call names as one of its arguments. Empty if it names none."""
    try:
        arguments = dict_or_none(json.loads(call.arguments)) or {}
    except (ValueError, RecursionError):
        return ""
    return next((str(arguments[key]) for key in _FILE_KEYS if arguments.get(key)), "")


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
