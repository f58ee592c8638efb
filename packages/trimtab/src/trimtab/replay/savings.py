"""Compare policies with what was paid, and the model of the costs with the bill.

The baseline is `everything`: what the client sent. A saving is a share of its modelled cost, over
the calls that both could send. A policy pays for what it hid: if a later call names it, the text is
fetched again.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.replay.billing import CacheRules, InputBill
from trimtab.replay.results import ReplayStudy
from trimtab.replay.runner import EVERYTHING, ConversationRun, ReplayedCall
from trimtab.replay.setup_costs import (
    BOOTSTRAP_RESAMPLES,
    BOOTSTRAP_SEED,
    CONFIDENCE_LEVEL,
    compute_call_cost_in_input_tokens,
    compute_refetch_cost,
)

MIN_SAVING = 0.05
"""Below this share nothing is worth installing."""
MIN_SESSIONS, MIN_CALLS = 3, 90
"""With fewer sessions or calls a comparison proves little."""
_TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySaving:
    policy: str
    """The policy's name."""
    dollars: float
    """What the replayed calls would have cost."""
    saved: float
    """Share of the cost of `everything` that is saved. Negative if the policy costs more."""
    low: float
    """Lower end of the 95 % interval, from resampled conversations."""
    high: float
    """Upper end of the interval."""
    visible: float | None
    """Share of the texts that the agent names again and the request still shows."""
    refused: int
    """Calls that could not be made to fit the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    sessions: int
    """Number of replayed sessions."""
    calls: int
    """Number of replayed calls."""
    models: Mapping[str, int]
    """The models whose prices and windows were used, with the window in tokens."""
    paid: float
    """What was paid for the input of these calls, in US dollars."""
    modelled: float
    """What the model says about it."""
    error: float | None
    """The share by which the model is off, for half of the conversations at most. None without
    usage."""
    everything: float
    """Modelled cost of sending everything, with output, in US dollars."""
    refused: int
    """Calls in which everything did not fit the window."""
    policies: tuple[PolicySaving, ...]
    """The policies in the order given."""

    @property
    def is_too_little(self) -> bool:
        """Whether there are too few sessions or calls for a judgement."""
        return self.sessions < MIN_SESSIONS or self.calls < MIN_CALLS

    @property
    def default(self) -> PolicySaving | None:
        """The first policy, for which the last sentence speaks."""
        return self.policies[0] if self.policies else None

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        return asdict(self)


def compute_savings(studies: Sequence[ReplayStudy]) -> Savings:
    """Add up studies of several models. Their first setup is `everything`."""
    bills = [bill for study in studies for bill in _compare_with_bill(study)]
    names = [setup.name for setup in studies[0].setups if not setup.sends_everything]
    base = [row for study in studies for row in study.rows if row.setup == EVERYTHING]
    paid, modelled = sum(a for a, _ in bills), sum(b for _, b in bills)
    errors = [abs(b - a) / a for a, b in bills if a > 0]
    return Savings(
        sessions=len({one.session for study in studies for one in study.conversations}),
        calls=sum(study.calls for study in studies),
        models={study.model: study.window for study in studies},
        paid=paid,
        modelled=modelled,
        error=statistics.median(errors) if errors else None,
        everything=sum(cost for s in studies for cost in _conversation_costs(s, EVERYTHING)),
        refused=sum(row.cannot_fit for row in base),
        policies=tuple(_compute_policy_saving(name, studies) for name in names),
    )


def _price(study: ReplayStudy) -> float:
    """Return US dollars per fresh input token. Without a price, shares are right and dollars 0."""
    return (study.providers[0].price or 0.0) / _TOKENS_PER_PRICE


def _compare_with_bill(study: ReplayStudy) -> list[tuple[float, float]]:
    """Return what was paid and what is modelled for the input of each conversation with usage."""
    own, price = study.providers[0], _price(study) or 1.0
    by_id = {run.conversation: run for run in study.runs if run.setup == EVERYTHING}
    bills: list[tuple[float, float]] = []
    for conversation in study.conversations:
        usage = conversation.usage
        calls = [c for c in by_id[conversation.id].calls if c.index in usage]
        paid = sum(_bill_usage(usage[call.index], own.rules) for call in calls)
        modelled = sum(call.bill[own.name].cost(own.rules) for call in calls)
        if paid:
            bills.append((paid * price, modelled * price))
    return bills


def _bill_usage(usage: Usage, rules: CacheRules) -> float:
    return InputBill(
        read=usage.cache_read,
        write=usage.cache_write,
        fresh=max(0, usage.input - usage.cache_read - usage.cache_write),
        write_long=usage.cache_write_long,
    ).cost(rules)


def _compute_policy_saving(name: str, studies: Sequence[ReplayStudy]) -> PolicySaving:
    pairs: list[tuple[float, float]] = []
    for study in studies:
        weight = _price(study) or 1.0 / _TOKENS_PER_PRICE
        runs = {(run.conversation, run.setup): run for run in study.runs}
        for conversation in study.conversations:
            base, run = runs[conversation.id, EVERYTHING], runs[conversation.id, name]
            shared = {c.index for c in base.calls} & {c.index for c in run.calls}
            pairs.append(
                (
                    weight * _sum_costs(study, base, shared),
                    weight * _sum_costs(study, run, shared),
                )
            )
    rows = [row for study in studies for row in study.rows if row.setup == name]
    calls = [c for study in studies for run in study.runs if run.setup == name for c in run.calls]
    needs = sum(call.needs for call in calls)
    low, high = resample_saved_share(pairs)
    return PolicySaving(
        policy=name,
        dollars=sum(cost for study in studies for cost in _conversation_costs(study, name)),
        saved=compute_saved_share(pairs),
        low=low,
        high=high,
        visible=sum(call.seen for call in calls) / needs if needs else None,
        refused=sum(row.cannot_fit for row in rows),
    )


def _conversation_costs(study: ReplayStudy, name: str) -> list[float]:
    """Return the US dollars of each conversation under one setup."""
    return [
        _price(study) * _sum_costs(study, run, {call.index for call in run.calls})
        for run in study.runs
        if run.setup == name
    ]


def _sum_costs(study: ReplayStudy, run: ConversationRun, indexes: set[int]) -> float:
    return sum(_call_cost(study, call) for call in run.calls if call.index in indexes)


def _call_cost(study: ReplayStudy, call: ReplayedCall) -> float:
    own = study.providers[0]
    spent = compute_call_cost_in_input_tokens(call, own.name, own.rules)
    return spent + compute_refetch_cost(call, own.rules)


def compute_saved_share(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the share that is saved, from two costs of each conversation: before and after."""
    base = sum(before for before, _ in pairs)
    return 1 - sum(after for _, after in pairs) / base if base else 0.0


def resample_saved_share(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the 95 % interval of the saved share, from resampled conversations."""
    rng = random.Random(BOOTSTRAP_SEED)  # noqa: S311 - no secret, and it must repeat
    shares = sorted(
        compute_saved_share(rng.choices(pairs, k=len(pairs))) for _ in range(BOOTSTRAP_RESAMPLES)
    )
    edge = int(len(shares) * (1 - CONFIDENCE_LEVEL) / 2)
    return shares[edge], shares[-1 - edge]
