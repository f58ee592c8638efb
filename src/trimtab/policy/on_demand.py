"""What is hidden when a person asks for a smaller context, whatever the policy.

The newest messages stay as they are; a summary made without a model stands for those before them,
and of the results that are left all but the newest become their first lines.
"""

from __future__ import annotations

from trimtab.policy.budget import Budget
from trimtab.policy.config import PolicyConfig
from trimtab.policy.planning.plan import Decision, Plan
from trimtab.policy.preset_building_blocks import (
    list_older_groups,
    shrink_older_results_to_first_lines,
)
from trimtab.policy.summary_requests import replace_groups_by_extractive_summary
from trimtab.window.window import Window

KEPT_MESSAGES_ON_DEMAND = 10
"""Newest messages that stay."""
KEPT_RESULTS_ON_DEMAND = 3
"""Newest results that keep more than a line."""
ON_DEMAND_REASON = "asked for"


def decide_on_demand_compaction(
    window: Window, budget: Budget, *, config: PolicyConfig
) -> Decision:
    """The edits; none where nothing older than the newest messages can be made smaller."""
    plan = Plan(window, budget)
    if older := [
        group
        for group in list_older_groups(plan, KEPT_MESSAGES_ON_DEMAND)
        if not plan.holds_keep_last_result(group)
    ]:
        replace_groups_by_extractive_summary(plan, older, ON_DEMAND_REASON)
    shrink_older_results_to_first_lines(
        plan, config, KEPT_RESULTS_ON_DEMAND, ON_DEMAND_REASON, lambda: True
    )
    return plan.to_decision()
