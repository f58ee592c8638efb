"""Over a number of bytes: old tool results shrink to their first lines."""

from __future__ import annotations

from trimtab.core.budget import Budget, quarter
from trimtab.core.edits import Strategy, truncated, truncated_bytes
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Goal, Knobs
from trimtab.core.policies.steps import bind_history, cap_results, mask_older
from trimtab.core.window import Window

MAX_RESULT_BYTES = 4_000
TUNING: dict[Goal, tuple[int, int]] = {
    "cost": (30_000, 4),
    "balanced": (50_000, 6),
    "quality": (80_000, 10),
}
"""Bytes of messages that trigger, and newest results kept whole, by goal."""


def compact(knobs: Knobs, goal: Goal = "balanced") -> Policy:
    keep = TUNING[goal][1]

    def words(strategy: Strategy, kept: int, total: int) -> str:
        if strategy == "head":
            return truncated_bytes(kept, total)
        return truncated(strategy, quarter(kept), quarter(total))

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        own = Cap(amount=MAX_RESULT_BYTES, unit="bytes", words=words, beside=True)
        cap_results(plan, knobs, own)
        bind_history(plan, knobs)
        limit = max_bytes(knobs, goal, budget)
        if plan.bytes > limit:
            why = f"{plan.bytes} bytes over {limit}"
            mask_older(plan, knobs, keep, why, lambda: plan.bytes <= limit)
        return plan.decision(summary_tokens=knobs.summary.max_tokens, frontier=plan.oldest_result())

    return decide


def max_bytes(knobs: Knobs, goal: Goal, budget: Budget) -> int:
    """Bytes of messages above which `compact` acts: the user's own number, or the goal's, and no
    more than is available."""
    own = knobs.max_context_bytes
    return min(TUNING[goal][0] if own is None else own, budget.available * 4)
