"""The room for messages in a request, with every term of the calculation visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from trimtab.engine.log.event import Settings, Size
from trimtab.engine.policy.request_limits import RequestLimits, find_request_limits
from trimtab.engine.tokens.counter import MAX_LEARNED_RATIO
from trimtab.engine.window.accounting import (
    LearnedRequestLimits,
    resolve_token_limit_and_source,
)
from trimtab.engine.window.window import Window

SAFETY_MARGIN_SHARE = 0.10
"""Share of the limit that the `bytes/4` calculation leaves free, because it is inaccurate."""

MIN_OUTPUT_TOKENS = 256
"""Minimum number of output tokens for a useful reply."""

DEFAULT_OUTPUT_TOKENS = 8_192
"""Output tokens to request if the user did not set a number."""

PRESETS_HIDING_ON_REFUSAL = ("layered", "compact", "rolling", "thresholds", "full")
"""Presets whose documents say what to hide at once if the provider refuses a request for its
length."""

DEFAULT_ACTOR_MESSAGE_LIMIT = 1_000
"""Messages that a live session keeps in memory if its limit is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens the next call may take, and how many of them are already used."""

    limit: int
    """Maximum tokens for input and requested output together. The provider refuses more."""
    source: str
    """What set the limit: `max_input_tokens`, `context_window`, `learned`, `model` or `default`."""
    soft_limit: int
    """Tokens above which the price rises, or the limit. Policies stay below it; the guard may
    exceed it."""
    head: Size
    """Size of the system prompt, the tool definitions, nested parameters and what a provider adds
    for tools."""
    max_output: int
    """Tokens reserved for the reply and requested from the provider."""
    least_output: int = 0
    """Minimum tokens of output to request if nothing else makes the request fit."""
    output_first: bool = False
    """True if less output is requested before anything is hidden, because the last call was
    refused."""
    volatile: int = 0
    """Estimated tokens of the volatile text that is sent with this call only."""
    margin: float = 0.15
    """Share to add to an estimate to get an upper bound."""
    ratio: float = 1.0
    """Ratio of reported to estimated tokens, learned from earlier calls. Below 1 it makes the room
    larger, and never an upper bound smaller."""
    now: float = 0.0
    """Current time in seconds since the epoch. It decides whether a cache is still alive."""
    input_limit: int = 0
    """Maximum tokens that the provider accepts for input alone; 0 if only the sum is limited."""
    request_limits: RequestLimits = field(default_factory=RequestLimits)
    """Limits of bytes, pictures and pixels in one request."""

    @property
    def max_input_bound(self) -> int:
        """Maximum tokens for the upper bound of the input."""
        rest = self.limit - self.max_output
        return min(rest, self.input_limit) if self.input_limit else rest

    @property
    def room(self) -> int:
        """Estimated tokens left for messages: soft limit − output − margin − head − volatile."""
        usable = (self.soft_limit - self.max_output) / (1 + self.margin) / self.ratio
        return max(0, int(usable) - self.head.tokens - self.volatile)

    @property
    def available(self) -> int:
        """The same, computed with `bytes/4`: limit − system − tools − output − 10 % of the
        limit."""
        safety = int(self.soft_limit * SAFETY_MARGIN_SHARE)
        return max(0, self.soft_limit - bytes_to_tokens(self.head.bytes) - self.max_output - safety)

    def tokens_at_share(self, share_of_limit: float) -> int:
        """Return the message tokens at which head and messages fill a share of the limit.

        The result is never more than the room.
        """
        return max(0, min(int(self.soft_limit * share_of_limit) - self.head.tokens, self.room))


def bytes_to_tokens(byte_count: int) -> int:
    """Convert bytes to tokens, four bytes to a token, rounded up."""
    return (byte_count + 3) // 4


def compute_max_messages_in_memory(token_limit: int | None) -> int:
    """Return the number of messages that a live session keeps in memory: twice as many as fit into
    the limit at 200 tokens each."""
    if not token_limit:
        return DEFAULT_ACTOR_MESSAGE_LIMIT
    return min(max(token_limit // 200 * 2, 100), 2_000)


def build_budget(
    settings: Settings,
    *,
    learned_limit: int | None,
    ratio: float,
    margin: float,
    volatile_tokens: int = 0,
    output_first: bool = False,
    now: float = 0.0,
    learned_request_limits: LearnedRequestLimits | None = None,
) -> Budget:
    """Return the budget of the next call."""
    limit, source = resolve_token_limit_and_source(settings, learned_limit)
    explicit: int | None = settings.limits.get("max_output_tokens")
    cap: int | None = settings.entry.get("max_output")
    thinking = read_thinking_budget(settings.params)
    reply = min(DEFAULT_OUTPUT_TOKENS, max(1, (limit - thinking) // 4))
    reserve = explicit or min(reply + thinking, cap or reply + thinking)
    input_limit: int = (source == "model" and settings.entry.get("input_limit")) or 0
    if input_limit:
        limit = min(limit, input_limit + reserve)
    soft: Any = settings.entry.get("soft_window")
    cheap = min(limit, soft) if soft and source in ("model", "learned") else limit
    return Budget(
        limit=limit,
        source=source,
        soft_limit=cheap,
        head=settings.head,
        max_output=reserve,
        least_output=(not output_first and explicit) or min(reserve, MIN_OUTPUT_TOKENS + thinking),
        volatile=volatile_tokens,
        output_first=output_first,
        margin=margin,
        ratio=min(max(ratio, 1 / MAX_LEARNED_RATIO), MAX_LEARNED_RATIO),
        now=now,
        input_limit=input_limit,
        request_limits=find_request_limits(settings, learned_request_limits),
    )


def read_thinking_budget(params: Mapping[str, Any]) -> int:
    """Return the tokens that the model may think before it replies. They count as output."""
    thinking = params.get("thinking")
    if not isinstance(thinking, Mapping):
        return 0
    tokens = cast("Mapping[str, Any]", thinking).get("budget_tokens")
    return tokens if isinstance(tokens, int) else 0


def hides_on_refusal(window: Window) -> bool:
    """Whether a refusal for length without numbers hides content at once.

    If not, less output is requested before anything is hidden. That is not enough for a window of
    less than half of what was believed.
    """
    known_limit, _ = resolve_token_limit_and_source(window.settings, None)
    learned_limit = window.accounting.learned_limit
    is_far_smaller = learned_limit is not None and learned_limit < known_limit // 2
    return is_far_smaller or window.settings.policy in PRESETS_HIDING_ON_REFUSAL


def compute_budget(window: Window, *, volatile_text: str | None, now: float) -> Budget:
    """Compute the budget of a window's next call."""
    budget = build_budget(
        window.settings,
        learned_limit=window.accounting.learned_limit,
        ratio=window.accounting.compute_calibration_ratio(),
        margin=window.counter.unanchored_margin,
        volatile_tokens=window.counter.count(volatile_text) + 8 if volatile_text else 0,
        output_first=window.accounting.overflow_was_counted
        or window.accounting.overflow_without_numbers,
        now=now,
        learned_request_limits=window.accounting.learned_request_limits,
    )
    nothing_was_hidden = window.accounting.refused_version == window.accounting.prefix_version
    if window.accounting.overflow_without_numbers and (
        nothing_was_hidden or not hides_on_refusal(window)
    ):
        # Nobody knows how long it may be: a shorter reply is what is easiest to do without.
        budget = replace(budget, max_output=budget.least_output)
    newest = {
        index
        for index in (window.turn_start_group, len(window.conversation.groups) - 1)
        if index >= 0
    }
    if sum(window.conversation.groups[index].tokens for index in newest) <= budget.room:
        return budget
    # What must stay already exceeds the limit of the lower price: hiding the rest saves nothing.
    return replace(budget, soft_limit=budget.limit)
