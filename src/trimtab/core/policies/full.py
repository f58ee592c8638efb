"""Keep everything; only what the user set and the final guard touch it."""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.plan import Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.steps import bind_knobs
from trimtab.core.window import Window


def full(knobs: Knobs) -> Policy:
    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        bind_knobs(plan, knobs)
        return plan.decision(summary_tokens=knobs.summary.max_tokens)

    return decide
