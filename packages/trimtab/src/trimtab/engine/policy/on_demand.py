"""Edits when a person asks for a smaller context, under any policy.

The newest messages stay as they are. A summary made without a model replaces the messages before
them. Of the remaining results, all except the newest become their first lines.
"""

from __future__ import annotations

from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.policy.preset_steps import (
    list_older_groups,
    shrink_older_results_to_first_lines,
)
from trimtab.engine.policy.summary_requests import replace_groups_by_extractive_summary
from trimtab.engine.window.window import Window

KEPT_MESSAGES_ON_DEMAND = 10
"""Number of newest messages that stay."""
KEPT_RESULTS_ON_DEMAND = 3
"""Number of newest results that keep more than one line."""
ON_DEMAND_REASON = "asked for"


def decide_on_demand_compaction(
    window: Window, budget: Budget, *, config: PolicyConfig
) -> Decision:
    """Return the edits; none if nothing older than the newest messages can be made smaller."""
    plan = Plan(window, budget)
    if older := [
        group
        for group in list_older_groups(plan, KEPT_MESSAGES_ON_DEMAND)
        if not plan.holds_keep_last_result(group)
    ]:
        summary = config.summary
        replace_groups_by_extractive_summary(
            plan,
            older,
            ON_DEMAND_REASON,
            summary.max_tokens,
            summary.list_tokens_under(window.settings.policy),
        )
    shrink_older_results_to_first_lines(
        plan, config, KEPT_RESULTS_ON_DEMAND, ON_DEMAND_REASON, lambda: True
    )
    return plan.to_decision()
