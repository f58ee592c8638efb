"""At a share of the window: summarise the older messages; at a higher one: trim."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.guard import cut_giants
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs, Summaries
from trimtab.core.policies.steps import bind_history, bind_masks, cap_results, older_groups
from trimtab.core.policies.summaries import first_of, low_water, stand_in_down_to, wanted_span
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
        all_older = older_groups(plan, at.keep)
        older = [group for group in all_older if not plan.keeps(group)]
        over = plan.tokens > hard
        if over or summaries == "extractive":
            # Above the trim the oldest of the newest messages are summarised, too, as far as it
            # takes: what is not would be dropped.
            may_go = first_of(older, older_groups(plan, 0) if over else all_older)
            stand_in_down_to(
                plan,
                may_go,
                low_water(plan, may_go, soft, hard),
                f"{plan.tokens} tokens over {at.summarise:.0%}",
                least=len(older),
                max_tokens=cap,
                list_tokens=listed,
            )
            older = all_older = []
            bind_history(plan, knobs)
        if plan.tokens > hard:
            plan.drop_oldest(
                lambda: plan.tokens <= soft, f"{plan.tokens} tokens over {at.trim:.0%}"
            )
        return plan.decision(
            wanted=wanted_span(plan, older or all_older), summary_tokens=cap, list_tokens=listed
        )

    return decide
