"""What a provider's cache charges, and what one way to compact would bring and take.

`auto` where a model writes the summaries: they have a price, and they take their time.

A summary that is wanted is named, not made; until it comes nothing is edited, for what is edited
now would be written to the cache twice. Where masks alone are the better bargain, or no summary
comes, they do not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.policy.config import PolicyConfig
from trimtab.policy.planning.plan import Plan
from trimtab.policy.summary_requests import count_framed_summary_tokens
from trimtab.summaries.format import REQUESTED_SUMMARY_TOKENS
from trimtab.window.entries_rounds_groups import Group
from trimtab.window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeCachePrices:
    """What the provider's cache charges, relative to a fresh input token."""

    read_price: float
    """A token read; raised by the share of reads that were measured to miss."""
    write_price: float
    """A token written."""
    is_cold: bool
    """True where nothing of the last request can be read any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOffer:
    """What one way to compact would bring, and take."""

    removed_tokens: int
    """R: tokens that leave."""
    rewrite_price: float
    """(w − r)·T: what is written to the cache again, in fresh input tokens."""
    summary_price: float = 0.0
    """S: the price of the summary call, in fresh input tokens of the main model."""

    @property
    def price(self) -> float:
        return self.rewrite_price + self.summary_price

    def beats(self, other: CompactionOffer, prices: RelativeCachePrices) -> bool:
        """Whether it is the better bargain; on a cold cache only the summary has a price."""
        if prices.is_cold:
            return self._gain(prices) > other._gain(prices)
        mine, theirs = self.removed_tokens * other.price, other.removed_tokens * self.price
        return mine > theirs if mine != theirs else self.removed_tokens > other.removed_tokens

    def is_paid_by(
        self, waiting_cost: float, payback_factor: float, prices: RelativeCachePrices
    ) -> bool:
        """Whether the meter has paid for it, or nothing but the summary must be paid."""
        return (
            prices.is_cold and self._gain(prices) > 0
        ) or waiting_cost >= payback_factor * self.price

    def _gain(self, prices: RelativeCachePrices) -> float:
        """What it saves at once where all must be written anyway."""
        return prices.write_price * self.removed_tokens - self.summary_price


MAX_CALLS_AWAITING_SUMMARY = 3
"""Calls for which masks wait for a summary that was named."""
OUTPUT_TOKEN_PRICE = 5.0
"""What an output token of a summary costs, in its input tokens."""
SUMMARY_PROMPT_TOKENS = 450
"""Of what a summarising model is told beside the history."""
MAX_SHOWN_MESSAGE_TOKENS = 300
"""Of one message that it is shown, at most."""


def estimate_summary_cost_in_tokens(
    window: Window, groups: Sequence[Group], config: PolicyConfig
) -> float:
    """S: what asking for a summary of these groups costs, in input tokens of the main model."""
    shown = sum(
        min(group.tokens, MAX_SHOWN_MESSAGE_TOKENS * group.message_count) for group in groups
    )
    read = shown + count_framed_summary_tokens(window, window.summary) + SUMMARY_PROMPT_TOKENS
    return config.summary.price * (read + OUTPUT_TOKEN_PRICE * REQUESTED_SUMMARY_TOKENS)


def select_groups_to_summarise(
    plan: Plan, groups: Sequence[Group], target_tokens: int, summary_tokens: int
) -> list[Group]:
    """As many of the oldest groups as leave no more tokens than `low` beside their summary."""
    need = (
        plan.tokens
        - plan.user_words_tokens
        - target_tokens
        + summary_tokens
        - count_framed_summary_tokens(plan.window, plan.summary)
    )
    taken: list[Group] = []
    for group in groups:
        if need <= 0:
            break
        need -= plan.group_tokens(group)
        taken.append(group)
    return taken


def count_calls_awaiting_summary(window: Window) -> int:
    """Calls since a summary was first named that has not come."""
    return (
        0
        if was_summarised_since_last_call(window)
        else int((window.policy_note or {}).get("waited", 0))
    )


def was_summarised_since_last_call(window: Window) -> bool:
    """Whether a summary was put in place since the last call: what was metered is paid."""
    last = window.last_call
    return last is not None and window.conversation.summary_seq > last.body.position


def is_summary_unlikely(window: Window) -> bool:
    """Whether a summary is not to be counted on: it failed lately, or nobody has made it."""
    return (
        count_calls_awaiting_summary(window) >= MAX_CALLS_AWAITING_SUMMARY
        or window.accounting.summary_stats.messages_until_retry(window.conversation.total_messages)
        > 0
    )
