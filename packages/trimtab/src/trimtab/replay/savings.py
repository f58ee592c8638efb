"""What policies would have saved, and how well the computed costs agree with the bill.

The baseline is `everything`: what the client sent. A saving is a share of its computed cost, over
the calls that both could send. A policy pays for what it hides: if a later call names it, the text
is fetched again.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import CacheRules, InputBill, ProviderPricing
from trimtab.replay.call_costs import compute_call_cost_in_input_tokens, compute_refetch_cost
from trimtab.replay.needs import sum_need_counts
from trimtab.replay.runner import EVERYTHING, ConversationRun, ReplayedCall, ReplaySetup
from trimtab.replay.selection import RecordedConversation

MIN_SAVING = 0.05
"""Share of the cost. A smaller saving is not worth an installation."""
MIN_SESSIONS, MIN_CALLS = 3, 90
"""With fewer sessions or calls a comparison proves little."""
_TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStudy:
    """The conversations of one model, replayed under several setups."""

    conversations: Sequence[RecordedConversation]
    """The conversations that were replayed."""
    setups: Sequence[ReplaySetup]
    """The setups. The first one sends everything."""
    runs: Sequence[ConversationRun]
    """Each conversation under each setup: the result of `replay_all`."""
    pricing: ProviderPricing
    """The prices of the model: the result of `get_provider_pricing`."""

    @property
    def model(self) -> str:
        return self.setups[0].model

    @property
    def window(self) -> int:
        """Size of the window in tokens, input and output together."""
        entry = resolve_model_info(self.model)
        return int(self.setups[0].options.get("context_window", entry.context_window))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySaving:
    """What one setup would have cost, compared with sending everything."""

    policy: str
    """The name of the setup."""
    dollars: float
    """What the replayed calls would have cost."""
    saved: float
    """Share of the cost of `everything` that is saved. Negative if the policy costs more."""
    visible: float | None
    """Share of the texts that the agent names again and the request still shows."""
    hidden_edits: float | None
    """Share of the edits that quote an old text whose quote the request does not show."""
    far_4grams: float | None
    """Share of the far 4-grams that the request still shows."""
    refused: int
    """Calls that could not be made to fit the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What replayed calls would have cost, and what the same computation says about the bill."""

    sessions: int
    """Number of replayed sessions."""
    calls: int
    """Number of replayed calls."""
    models: Mapping[str, int]
    """The models whose prices and windows were used, with the window in tokens."""
    paid: float
    """What was paid for the input of these calls, in US dollars."""
    modelled: float
    """What the computation gives for the same input, in US dollars."""
    error: float | None
    """How far the computed cost of a conversation's input is from what was paid, as a share of it:
    the median of the conversations. None if no usage is recorded."""
    everything: float
    """Computed cost of sending everything, with output, in US dollars."""
    refused: int
    """Calls in which everything did not fit the window."""
    policies: tuple[PolicySaving, ...]
    """The policies in the order given."""

    @property
    def is_too_little(self) -> bool:
        """Whether there are too few sessions or calls for a judgement."""
        return self.sessions < MIN_SESSIONS or self.calls < MIN_CALLS

    @property
    def default(self) -> PolicySaving:
        """The first policy, for which the last sentence speaks."""
        return self.policies[0]

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        return asdict(self)


def compute_savings(studies: Sequence[ReplayStudy]) -> Savings:
    """Return what each setup would have saved.

    Args:
        studies: One for each model. All have setups of the same names, and the first one is
            `everything`.
    """
    policy_names = [setup.name for setup in studies[0].setups if not setup.sends_everything]
    bills = [bill for study in studies for bill in _compare_with_bills(study)]
    errors = [abs(modelled - paid) / paid for paid, modelled in bills]
    return Savings(
        sessions=len({each.session for study in studies for each in study.conversations}),
        calls=sum(each.calls for study in studies for each in study.conversations),
        models={study.model: study.window for study in studies},
        paid=sum(paid for paid, _ in bills),
        modelled=sum(modelled for _, modelled in bills),
        error=statistics.median(errors) if errors else None,
        everything=_sum_dollars(studies, EVERYTHING),
        refused=sum(run.cannot_fit for run in _list_runs(studies, EVERYTHING)),
        policies=tuple(_compute_policy_saving(name, studies) for name in policy_names),
    )


def _list_runs(studies: Sequence[ReplayStudy], setup: str) -> list[ConversationRun]:
    return [run for study in studies for run in study.runs if run.setup == setup]


def _dollars_per_token(study: ReplayStudy) -> float:
    """Return the price of a fresh input token; 0 if the model's price is not known."""
    return (study.pricing.price or 0.0) / _TOKENS_PER_PRICE


def _compare_with_bills(study: ReplayStudy) -> list[tuple[float, float]]:
    """Return what was paid and what is computed for the input of each conversation with usage.

    Both are in US dollars, or in tokens if the price is not known.
    """
    provider, token_price = study.pricing, _dollars_per_token(study) or 1.0
    runs = {run.conversation: run for run in study.runs if run.setup == EVERYTHING}
    bills: list[tuple[float, float]] = []
    for conversation in study.conversations:
        usage = conversation.usage
        calls = [call for call in runs[conversation.id].calls if call.index in usage]
        paid = sum(_bill_usage(usage[call.index], provider.rules) for call in calls)
        modelled = sum(call.bill[provider.name].cost(provider.rules) for call in calls)
        if paid:
            bills.append((paid * token_price, modelled * token_price))
    return bills


def _bill_usage(usage: Usage, rules: CacheRules) -> float:
    """Return what the input of a call cost, in fresh input tokens."""
    return InputBill(
        read=usage.cache_read,
        write=usage.cache_write,
        fresh=max(0, usage.input - usage.cache_read - usage.cache_write),
        write_long=usage.cache_write_long,
    ).cost(rules)


def _compute_policy_saving(name: str, studies: Sequence[ReplayStudy]) -> PolicySaving:
    before_cost = after_cost = 0.0
    for study in studies:
        # Models differ in price, so that costs are added up in dollars. Without a price, a model
        # gets a dollar for a million tokens.
        token_price = _dollars_per_token(study) or 1.0 / _TOKENS_PER_PRICE
        runs = {(run.conversation, run.setup): run for run in study.runs}
        for conversation in study.conversations:
            before, after = runs[conversation.id, EVERYTHING], runs[conversation.id, name]
            shared = {call.index for call in before.calls} & {call.index for call in after.calls}
            before_cost += token_price * _sum_costs(study, before, shared)
            after_cost += token_price * _sum_costs(study, after, shared)
    runs_of_policy = _list_runs(studies, name)
    needs = sum_need_counts(call.needs for run in runs_of_policy for call in run.calls)
    return PolicySaving(
        policy=name,
        dollars=_sum_dollars(studies, name),
        saved=1 - after_cost / before_cost if before_cost else 0.0,
        visible=_share_of(needs.seen, needs.references),
        hidden_edits=_share_of(needs.hidden_edits, needs.quoting_edits),
        far_4grams=_share_of(needs.far_4grams_seen, needs.far_4grams),
        refused=sum(run.cannot_fit for run in runs_of_policy),
    )


def _share_of(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _sum_dollars(studies: Sequence[ReplayStudy], name: str) -> float:
    """Return the US dollars of all conversations under one setup."""
    return sum(
        _dollars_per_token(study) * sum(_call_cost(study, call) for call in run.calls)
        for study in studies
        for run in study.runs
        if run.setup == name
    )


def _sum_costs(study: ReplayStudy, run: ConversationRun, indexes: set[int]) -> float:
    """Return what the calls with these indexes cost, in fresh input tokens."""
    return sum(_call_cost(study, call) for call in run.calls if call.index in indexes)


def _call_cost(study: ReplayStudy, call: ReplayedCall) -> float:
    provider = study.pricing
    cost = compute_call_cost_in_input_tokens(call, provider.name, provider.rules)
    return cost + compute_refetch_cost(call, provider.rules)
