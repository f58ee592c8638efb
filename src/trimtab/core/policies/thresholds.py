"""At a share of the window: summarise the older messages; at a higher one: trim."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs, Summaries
from trimtab.core.policies.steps import bind_history, bind_masks, cap_results, older_groups
from trimtab.core.policies.summaries import stand_in, wanted_span
from trimtab.core.window import Window

SUMMARISE_AT = 0.7
"""Share of the window in use at which older messages are summarised."""
TRIM_AT = 0.9
"""Share of the window in use at which oldest messages are dropped, as a fallback."""
KEEP = 10
"""Newest messages kept whole."""
MAX_RESULT_CHARS = 8_000


def thresholds(
    knobs: Knobs,
    summaries: Summaries = "extractive",
    *,
    summarise_at: float = SUMMARISE_AT,
    trim_at: float = TRIM_AT,
    keep: int = KEEP,
) -> Policy:
    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        cap_results(plan, knobs, Cap(amount=MAX_RESULT_CHARS, unit="chars"))
        bind_history(plan, knobs)
        bind_masks(plan, knobs)
        soft, hard = budget.share(summarise_at), budget.share(trim_at)
        if plan.tokens <= soft:
            return plan.decision()
        older = older_groups(plan, keep)
        if older and (summaries == "extractive" or plan.tokens > hard):
            stand_in(plan, older, f"{plan.tokens} tokens over {summarise_at:.0%}")
            older = []
        if plan.tokens > hard:
            plan.drop_oldest(
                lambda: plan.tokens <= soft, f"{plan.tokens} tokens over {trim_at:.0%}"
            )
        return plan.decision(wanted=wanted_span(older))

    return decide
