"""What setups would have saved, conversation by conversation, in numbers that can be added.

The baseline is `everything`: what the client sent. A setup pays for what it hides: if a later call
names it, the text is fetched again. Only the calls that both could send are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimtab.engine.log.event import Usage
from trimtab.replay.billing import InputBill, ProviderPricing
from trimtab.replay.call_costs import compute_call_cost_in_input_tokens, compute_refetch_cost
from trimtab.replay.calls import EVERYTHING, ConversationRun, ReplayedCall
from trimtab.replay.selection import RecordedConversation

TOKENS_PER_PRICE = 1_000_000


class Saving(NamedTuple):
    """What one setup costs in one conversation or in several, compared with sending everything."""

    cost: float = 0.0
    """US dollars, or millions of fresh input tokens if the price of the model is not known."""
    baseline: float = 0.0
    """The same for sending everything."""
    references: int = 0
    """Names and paths of earlier messages that the agent used again."""
    hidden: int = 0
    """How many of them the request did not show."""
    refused: int = 0
    """Calls that could not be made to fit the window."""

    @property
    def saved(self) -> float:
        """Share of the cost of everything. Negative if the setup costs more."""
        return 1 - self.cost / self.baseline if self.baseline else 0.0

    @property
    def hidden_share(self) -> float:
        return self.hidden / self.references if self.references else 0.0


def add_savings(savings: Iterable[Saving]) -> Saving:
    """Return what several conversations under one setup come to."""
    return Saving(*map(sum, zip(Saving(), *savings, strict=True)))


def compute_savings(
    runs: Sequence[ConversationRun], pricing: ProviderPricing
) -> dict[str, dict[str, Saving]]:
    """Return what each setup costs in each conversation, by the setup's name and conversation's id.

    Args:
        runs: The result of `replay_all`. The setup that sends everything is among its setups.
        pricing: The prices: the result of `get_provider_pricing`.
    """
    baselines = {run.conversation: run for run in runs if run.setup == EVERYTHING}
    savings: dict[str, dict[str, Saving]] = {}
    for run in runs:
        baseline = baselines[run.conversation]
        indexes = {call.index for call in baseline.calls} & {call.index for call in run.calls}
        savings.setdefault(run.setup, {})[run.conversation] = Saving(
            cost=_sum_costs(run.calls, indexes, pricing),
            baseline=_sum_costs(baseline.calls, indexes, pricing),
            references=sum(call.needs.references for call in run.calls),
            hidden=sum(call.needs.references - call.needs.seen for call in run.calls),
            refused=run.cannot_fit,
        )
    return savings


def compute_input_bill(
    conversation: RecordedConversation, run: ConversationRun, pricing: ProviderPricing
) -> tuple[float, float]:
    """Return what was paid for the input of the calls with usage, and what is computed for it."""
    usage, rules = conversation.usage, pricing.rules
    calls = [call for call in run.calls if call.index in usage]
    paid = sum(_read_bill(usage[call.index]).cost(rules) for call in calls)
    return paid, sum(call.bill[pricing.name].cost(rules) for call in calls)


def _read_bill(usage: Usage) -> InputBill:
    return InputBill(
        read=usage.cache_read,
        write=usage.cache_write,
        fresh=max(0, usage.input - usage.cache_read - usage.cache_write),
        write_long=usage.cache_write_long,
    )


def _sum_costs(calls: Iterable[ReplayedCall], indexes: set[int], pricing: ProviderPricing) -> float:
    cost = sum(
        compute_call_cost_in_input_tokens(call, pricing.name, pricing.rules)
        + compute_refetch_cost(call, pricing.rules)
        for call in calls
        if call.index in indexes
    )
    return cost * (pricing.price or 1.0) / TOKENS_PER_PRICE
