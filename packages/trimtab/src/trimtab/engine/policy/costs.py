"""Cache prices of a provider, and the gains and costs of one way to compact.

`auto` uses this module if a model writes the summaries, which cost money and take time.

The policy only requests a summary; it does not make one. It edits nothing until the summary
arrives, because an edit now would write the same text to the cache twice. If masks alone are
cheaper, or no summary arrives, the policy does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.policy.summary_requests import count_framed_summary_tokens
from trimtab.engine.summaries.format import REQUESTED_SUMMARY_TOKENS
from trimtab.engine.window.structure import Group
from trimtab.engine.window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeCachePrices:
    """Prices of the provider's cache, relative to a fresh input token."""

    read_price: float
    """Price of a token read from the cache. Measured cache misses raise it."""
    write_price: float
    """Price of a token written to the cache."""
    is_cold: bool
    """True if nothing of the last request can still be read from the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOffer:
    """The gain and the cost of one way to compact."""

    removed_tokens: int
    """R: tokens that would be removed."""
    rewrite_price: float
    """(w − r)·T: the cost of writing to the cache again, in fresh input tokens."""
    summary_price: float = 0.0
    """S: the price of the summary call, in fresh input tokens of the main model."""

    @property
    def price(self) -> float:
        return self.rewrite_price + self.summary_price

    def beats(self, other: CompactionOffer, prices: RelativeCachePrices) -> bool:
        """Whether this offer is cheaper than another. On a cold cache only the summary has a
        price."""
        if prices.is_cold:
            return self._gain(prices) > other._gain(prices)
        mine = self.removed_tokens * other.price
        theirs = other.removed_tokens * self.price
        return mine > theirs if mine != theirs else self.removed_tokens > other.removed_tokens

    def is_paid_by(
        self, waiting_cost: float, payback_factor: float, prices: RelativeCachePrices
    ) -> bool:
        """Whether the waiting cost has paid for the offer, or only the summary has a price."""
        return (
            prices.is_cold and self._gain(prices) > 0
        ) or waiting_cost >= payback_factor * self.price

    def _gain(self, prices: RelativeCachePrices) -> float:
        """Return what the offer saves at once if everything must be written to the cache anyway."""
        return prices.write_price * self.removed_tokens - self.summary_price


MAX_CALLS_AWAITING_SUMMARY = 3
"""Maximum number of calls for which masks wait for a requested summary."""
OUTPUT_TOKEN_PRICE = 5.0
"""Price of an output token of the summarising model, in its input tokens."""
SUMMARY_PROMPT_TOKENS = 450
"""Tokens of the summarising model's prompt without the history."""
MAX_SHOWN_MESSAGE_TOKENS = 300
"""Maximum tokens of one message that the summarising model sees."""


def estimate_summary_cost_in_tokens(
    window: Window, groups: Sequence[Group], config: PolicyConfig
) -> float:
    """S: return the cost of a summary of these groups, in input tokens of the main model."""
    message_tokens = sum(
        min(group.tokens, MAX_SHOWN_MESSAGE_TOKENS * group.message_count) for group in groups
    )
    read = (
        message_tokens + count_framed_summary_tokens(window, window.summary) + SUMMARY_PROMPT_TOKENS
    )
    return config.summary.price * (read + OUTPUT_TOKEN_PRICE * REQUESTED_SUMMARY_TOKENS)


def select_groups_to_summarise(
    plan: Plan, groups: Sequence[Group], target_tokens: int, summary_tokens: int
) -> list[Group]:
    """Select the oldest groups until at most `target_tokens` are left beside their summary."""
    need = (
        plan.tokens
        - plan.user_words_tokens
        - target_tokens
        + summary_tokens
        - count_framed_summary_tokens(plan.window, plan.summary)
    )
    selection: list[Group] = []
    for group in groups:
        if need <= 0:
            break
        need -= plan.group_tokens(group)
        selection.append(group)
    return selection


def count_calls_awaiting_summary(window: Window) -> int:
    """Count the calls since the pending summary was first requested."""
    return (
        0
        if was_summarised_since_last_call(window)
        else int((window.policy_note or {}).get("waited", 0))
    )


def was_summarised_since_last_call(window: Window) -> bool:
    """Whether a summary was put in place since the last call, so that the meter starts again."""
    last = window.last_call
    return last is not None and window.conversation.summary_seq > last.body.position


def is_summary_unlikely(window: Window) -> bool:
    """Whether no summary can be expected: it failed recently, or nobody has made it."""
    return (
        count_calls_awaiting_summary(window) >= MAX_CALLS_AWAITING_SUMMARY
        or window.accounting.summary_stats.messages_until_retry(window.conversation.total_messages)
        > 0
    )
