"""A sliding window of messages over one rolling summary."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.extract import MAX_TOKENS
from trimtab.core.guard import cut_giants
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs, Summaries
from trimtab.core.policies.steps import bind_history, bind_masks, cap_results, older_groups
from trimtab.core.policies.summaries import first_of, low_water, stand_in_down_to, wanted_span
from trimtab.core.window import Window

MAX_TOOL_RESULT_TOKENS = 8_000
LOW = 0.7
"""Share of the room down to which messages are summarised where those that are kept exceed it."""


def rolling(knobs: Knobs, summaries: Summaries = "extractive") -> Policy:
    summary = knobs.summary
    cap, listed = summary.max_tokens or MAX_TOKENS, summary.listed

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        cap_results(plan, knobs, Cap(amount=MAX_TOOL_RESULT_TOKENS))
        cut_giants(plan, budget.room)
        bind_history(plan, knobs)
        bind_masks(plan, knobs)
        if plan.messages <= summary.window and plan.tokens <= budget.room:
            return plan.decision(summary_tokens=cap, list_tokens=listed)
        over, forced = plan.tokens > budget.room, plan.messages >= summary.forced
        older = [g for g in older_groups(plan, summary.keep) if forced or not plan.keeps(g)]
        why = f"{plan.messages} messages, window {summary.window}"
        if over or forced or summaries == "extractive":
            # Where the newest messages alone are over the room, the oldest of them are summarised,
            # too: what is not would be dropped.
            may_go = first_of(older, older_groups(plan, 0)) if over else older
            stand_in_down_to(
                plan,
                may_go,
                low_water(plan, may_go, int(LOW * budget.room), budget.room),
                why,
                least=len(older),
                max_tokens=cap,
                list_tokens=listed,
            )
            older = []
            bind_history(plan, knobs)  # a summary of what was found since counts as history
        return plan.decision(
            wanted=wanted_span(plan, older), summary_tokens=cap, list_tokens=listed
        )

    return decide
