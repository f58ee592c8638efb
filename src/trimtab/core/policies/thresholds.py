"""At a share of the window: summarise the older messages; at a higher one: trim."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.guard import cut_giants
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs, Summaries
from trimtab.core.policies.steps import bind_history, bind_masks, cap_results, older_groups
from trimtab.core.policies.summaries import stand_in, wanted_span
from trimtab.core.window import Window

MAX_RESULT_CHARS = 8_000


def thresholds(knobs: Knobs, summaries: Summaries = "extractive") -> Policy:
    at, cap, listed = knobs.thresholds, knobs.summary.max_tokens, knobs.summary.listed

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        cap_results(plan, knobs, Cap(amount=MAX_RESULT_CHARS, unit="chars"))
        bind_history(plan, knobs)
        bind_masks(plan, knobs)
        soft, hard = budget.share(at.summarise), budget.share(at.trim)
        cut_giants(plan, hard)
        if plan.tokens <= soft:
            return plan.decision(summary_tokens=cap, list_tokens=listed)
        older = older_groups(plan, at.keep)
        if older and (summaries == "extractive" or plan.tokens > hard):
            stand_in(plan, older, f"{plan.tokens} tokens over {at.summarise:.0%}", cap, listed)
            older = []
            bind_history(plan, knobs)
        if plan.tokens > hard:
            plan.drop_oldest(
                lambda: plan.tokens <= soft, f"{plan.tokens} tokens over {at.trim:.0%}"
            )
        return plan.decision(wanted=wanted_span(older), summary_tokens=cap, list_tokens=listed)

    return decide
