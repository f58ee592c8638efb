"""A sliding window of messages over one rolling summary."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.extract import MAX_TOKENS
from trimtab.core.guard import cut_giants
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs, Summaries
from trimtab.core.policies.steps import bind_history, bind_masks, cap_results, older_groups
from trimtab.core.policies.summaries import stand_in, wanted_span
from trimtab.core.window import Window

MAX_TOOL_RESULT_TOKENS = 8_000


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
        older = older_groups(plan, summary.keep)
        full = plan.messages >= summary.forced or plan.tokens > budget.room
        why = f"{plan.messages} messages, window {summary.window}"
        if older and (full or summaries == "extractive"):
            stand_in(plan, older, why, cap, listed)
            older = []
            bind_history(plan, knobs)  # a summary of what was found since counts as history
        return plan.decision(wanted=wanted_span(older), summary_tokens=cap, list_tokens=listed)

    return decide
