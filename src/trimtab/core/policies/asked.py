"""What is hidden when a person asks for a smaller context, whatever the policy.

The newest messages stay as they are; a summary made without a model stands for those before them,
and of the results that are left all but the newest become their first lines.
"""

from __future__ import annotations

from trimtab.core.budget import Budget
from trimtab.core.plan import Decision, Plan
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.steps import mask_older, older_groups
from trimtab.core.policies.summaries import stand_in
from trimtab.core.window import Window

MESSAGES = 10
"""Newest messages that stay."""
RESULTS = 3
"""Newest results that keep more than a line."""
WHY = "asked for"


def asked(window: Window, budget: Budget, *, knobs: Knobs) -> Decision:
    """The edits; none where nothing older than the newest messages can be made smaller."""
    plan = Plan(window, budget)
    if older := [group for group in older_groups(plan, MESSAGES) if not plan.keeps(group)]:
        stand_in(plan, older, WHY)
    mask_older(plan, knobs, RESULTS, WHY, lambda: True)
    return plan.decision()
