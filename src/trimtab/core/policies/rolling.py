"""A sliding window of messages over one rolling summary."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.extract import MAX_TOKENS
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs, Summaries
from trimtab.core.policies.steps import bind_history, bind_masks, cap_results, older_groups
from trimtab.core.policies.summaries import stand_in, wanted_span
from trimtab.core.window import Window

WINDOW = 15
"""Messages above which the oldest are summarised."""
KEEP = 10
"""Newest messages kept whole."""
FORCED = 50
"""Messages at which nobody is waited for any more."""
MAX_TOOL_RESULT_TOKENS = 8_000


def rolling(
    knobs: Knobs,
    summaries: Summaries = "extractive",
    *,
    window_size: int = WINDOW,
    keep: int = KEEP,
    forced: int = FORCED,
) -> Policy:
    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        cap_results(plan, knobs, Cap(amount=MAX_TOOL_RESULT_TOKENS))
        bind_history(plan, knobs)
        bind_masks(plan, knobs)
        if plan.messages <= window_size and plan.tokens <= budget.room:
            return plan.decision(summary_tokens=MAX_TOKENS)
        older = older_groups(plan, keep)
        full = plan.messages >= forced or plan.tokens > budget.room
        why = f"{plan.messages} messages, window {window_size}"
        if older and (full or summaries == "extractive"):
            stand_in(plan, older, why)
            return plan.decision(summary_tokens=MAX_TOKENS)
        return plan.decision(wanted=wanted_span(older), summary_tokens=MAX_TOKENS)

    return decide
