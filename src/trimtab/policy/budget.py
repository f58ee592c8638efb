"""Room: what a request may hold, with every term of the subtraction visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from trimtab.log.event import Settings, Size
from trimtab.policy.request_limits import RequestLimits, find_request_limits
from trimtab.tokens.counter import MAX_LEARNED_RATIO
from trimtab.window.learned_from_calls import resolve_token_limit_and_source
from trimtab.window.window import Window

SAFETY_MARGIN_SHARE = 0.10
"""Share of the limit that the `bytes/4` arithmetic leaves free, against its own inaccuracy."""

MIN_OUTPUT_TOKENS = 256
"""Tokens of output below which a reply is hardly one."""

DEFAULT_OUTPUT_TOKENS = 8_192
"""Tokens of output asked for where the user did not say."""

PRESETS_HIDING_ON_REFUSAL = ("layered", "compact", "rolling", "thresholds", "full")
"""Presets whose documents say what is hidden at once after a refusal for length. Others ask for
less output before they hide anything."""

DEFAULT_ACTOR_MESSAGE_LIMIT = 1_000
"""Messages that a live session keeps in memory where its limit is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens the next call may take, and what is already spoken for."""

    limit: int
    """Tokens that input and requested output may reach together; the provider refuses more."""
    source: str
    """What set the limit: `max_input_tokens`, `context_window`, `learned`, `model` or `default`."""
    soft_limit: int
    """Tokens beyond which the price jumps, or the limit; policies stay below, the guard may not."""
    head: Size
    """System prompt, tool definitions, nested parameters, and what a provider adds for having
    tools."""
    max_output: int
    """Tokens reserved for the reply and asked for in the request."""
    least_output: int = 0
    """Tokens of output that are asked for at least, where nothing else makes the request fit."""
    output_first: bool = False
    """True where less output is asked for before anything is hidden: the last call was refused."""
    volatile: int = 0
    """Estimated tokens of the tail that rides with this call alone."""
    margin: float = 0.15
    """Share to add to an estimate so that it holds as an upper bound."""
    ratio: float = 1.0
    """Reported over estimated tokens, as learned from earlier calls; 1 or more."""
    now: float = 0.0
    """Seconds since the epoch: whether a cache is still alive depends on it."""
    input_limit: int = 0
    """Tokens of input alone that the provider takes at most; 0 where only the sum is limited."""
    request_limits: RequestLimits = field(default_factory=RequestLimits)
    """Bytes, pictures and pixels that the provider takes in one request."""

    @property
    def max_input_bound(self) -> int:
        """Tokens that the input may reach by its upper bound."""
        rest = self.limit - self.max_output
        return min(rest, self.input_limit) if self.input_limit else rest

    @property
    def room(self) -> int:
        """Estimated tokens left for messages: soft limit − output − margin − head − volatile."""
        usable = (self.soft_limit - self.max_output) / (1 + self.margin) / self.ratio
        return max(0, int(usable) - self.head.tokens - self.volatile)

    @property
    def available(self) -> int:
        """The same by `bytes/4`: limit − system − tools − output − 10 % of the limit."""
        safety = int(self.soft_limit * SAFETY_MARGIN_SHARE)
        return max(0, self.soft_limit - bytes_to_tokens(self.head.bytes) - self.max_output - safety)

    def tokens_at_share(self, share_of_limit: float) -> int:
        """Estimated tokens of messages at which head and messages fill a share of the limit;
        never more than the room."""
        return max(0, min(int(self.soft_limit * share_of_limit) - self.head.tokens, self.room))


def bytes_to_tokens(byte_count: int) -> int:
    """Bytes as tokens, four to one, rounded up."""
    return (byte_count + 3) // 4


def compute_max_messages_in_memory(token_limit: int | None) -> int:
    """Messages that a live session keeps in memory: twice what a limit holds at 200 tokens each."""
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
) -> Budget:
    """The budget of the next call."""
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
        ratio=min(max(ratio, 1.0), MAX_LEARNED_RATIO),
        now=now,
        input_limit=input_limit,
    )


def read_thinking_budget(params: Mapping[str, Any]) -> int:
    """Tokens that the model may think before it replies; they are output, too."""
    asked = params.get("thinking")
    if not isinstance(asked, Mapping):
        return 0
    tokens = cast("Mapping[str, Any]", asked).get("budget_tokens")
    return tokens if isinstance(tokens, int) else 0


def compute_budget(window: Window, *, volatile_text: str | None, now: float) -> Budget:
    """The terms of the next call's limit."""
    budget = build_budget(
        window.settings,
        learned_limit=window.accounting.learned_limit,
        ratio=window.accounting.compute_calibration_ratio(),
        margin=window.counter.unanchored_margin,
        volatile_tokens=window.counter.count(volatile_text) + 8 if volatile_text else 0,
        output_first=window.accounting.overflow_was_counted
        or window.accounting.overflow_without_numbers,
        now=now,
    )
    limits = find_request_limits(window.settings, window.accounting.learned_request_limits)
    budget = replace(budget, request_limits=limits)
    unchanged = window.accounting.version_at_last_call == window.accounting.prefix_version
    if window.accounting.overflow_without_numbers and (
        unchanged or window.settings.policy not in PRESETS_HIDING_ON_REFUSAL
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
    # What must stay is above where the price jumps: to hide the rest would be in vain.
    return replace(budget, soft_limit=budget.limit)
