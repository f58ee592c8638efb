"""After a refusal for length: what is hidden at once, whatever the policy.

All but the newest results become their first lines, the rest is cut to 1,000 characters; where
that is not enough, the oldest half of the conversation goes, in whole groups.
"""

from __future__ import annotations

from collections.abc import Callable

from trimtab.core.budget import HIDE_FIRST, Budget
from trimtab.core.guard import CannotFit, cannot_fit, guarded
from trimtab.core.plan import Cap, Decision, Plan
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.steps import kept_last, mask_older
from trimtab.core.sacrifice import sacrifice
from trimtab.core.window import Window

KEEP = 3
"""Newest results that keep more than a line."""
CHARS = 1_000
"""Of each of those."""
BYTES = 30_000
"""Of all messages, where the refusal named no limit and for `compact`."""
WHY = "the provider refused the request for its length"


def aggressive(window: Window, budget: Budget, *, knobs: Knobs) -> Decision:
    """The edits; at least some, wherever anything can be hidden: the same was refused already."""
    plan = Plan(window, budget)
    enough = _enough(plan)
    if not enough():
        mask_older(plan, knobs, KEEP, WHY, enough)
    if not enough():
        for result in kept_last(plan, list(window.results.values())):
            if result.key in plan.kept and enough():
                break
            if plan.shows(result):
                plan.truncate(result.entry, result.part, Cap(amount=CHARS, unit="chars"), WHY)
    if not enough() or plan.tokens >= window.tokens:
        drop_half(plan)
    if not enough() or plan.tokens >= window.tokens:
        halve(plan)
    plan.settle()
    return plan.decision() if plan.bound() < Plan(window, budget).bound() else Decision()


def after_refusal(window: Window, budget: Budget, *, knobs: Knobs) -> Decision:
    """The edits that it takes for the next request to be another than the one that was refused:
    none where a limit that was learned, or less output, makes it so. CannotFit where none would."""
    plan, last = Plan(window, budget), window.last_call
    output = budget.max_output
    if not window.refused:  # else the limit is only guessed from what was refused
        output = min(output, budget.limit - plan.bound())
    if window.refused and window.settings.policy in HIDE_FIRST:
        decision = aggressive(window, budget, knobs=knobs)
        if decision.edits:
            return decision
    try:
        smaller = not window.refused and guarded(window, budget, ())
        if smaller or (last is not None and output < last.body.max_output):
            return Decision()  # with less output it is another request already
    except CannotFit:
        return Decision()  # which is said where the request is made again
    decision = aggressive(window, budget, knobs=knobs)
    if not decision.edits:
        raise cannot_fit(plan, refusal="")
    return decision


def drop_half(plan: Plan) -> None:
    """The oldest half of what is seen; a cut inside of a group moves before it."""
    kept, before = plan.messages // 2, plan.tokens
    with plan.provided(lambda: plan.tokens < before):
        for group in plan.kept_last(plan.groups()):
            if plan.messages - group.messages < kept:
                return
            plan.drop(group, WHY)


def halve(plan: Plan) -> None:
    """What is left goes in the order of sacrifice, until half of what was refused is left."""
    most = Plan(plan.window, plan.budget).bound() // 2
    sacrifice(plan, lambda: plan.bound() <= most, WHY)


def _enough(plan: Plan) -> Callable[[], bool]:
    named = plan.window.learned_limit is not None and not plan.window.refused
    if not named or plan.window.settings.policy == "compact":
        return lambda: plan.bytes <= BYTES
    return lambda: plan.bound() <= plan.budget.most_input
