"""Edits after a provider refused a request for its length, under any policy.

The newest results are cut to 1,000 characters, and all others to their first lines. If that is not
enough, the oldest half of the conversation is hidden, in whole groups.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trimtab.engine.policy.budget import Budget, hides_on_refusal
from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.guard import add_edits_to_fit, build_cannot_fit_error
from trimtab.engine.policy.hiding import hide_in_order
from trimtab.engine.policy.media import decide_media_over_limits
from trimtab.engine.policy.planning.plan import Decision, Plan, Policy, TextCap
from trimtab.engine.policy.preset_steps import (
    order_kept_file_results_last,
    shrink_older_results_to_first_lines,
)
from trimtab.engine.policy.rejections import decide_masks_before_retry
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit

KEPT_RESULTS_AFTER_OVERFLOW = 3
"""Number of newest results that keep more than one line."""
KEPT_RESULT_CHARS = 1_000
"""Maximum characters of each of those results."""
UNKNOWN_LIMIT_TARGET_BYTES = 30_000
"""Target for all messages if the refusal named no limit, and for `compact`."""
OVERFLOW_REASON = "the provider refused the request for its length"


def decide_aggressive_hiding(window: Window, budget: Budget, *, config: PolicyConfig) -> Decision:
    """Return the edits. There is at least one if anything can be hidden, because the same request
    was already refused."""
    plan = Plan(window, budget)
    enough = _make_enough_check(plan)
    if not enough():
        shrink_older_results_to_first_lines(
            plan, config, KEPT_RESULTS_AFTER_OVERFLOW, OVERFLOW_REASON, enough
        )
    if not enough():
        for result in order_kept_file_results_last(plan, list(window.results.values())):
            if result.key in plan.keep_last_results and enough():
                break
            if plan.shows(result):
                plan.truncate(
                    result.entry,
                    result.part,
                    TextCap(amount=KEPT_RESULT_CHARS, unit="chars"),
                    OVERFLOW_REASON,
                )
    if not enough() or plan.tokens >= window.tokens:
        drop_oldest_half(plan)
    if not enough() or plan.tokens >= window.tokens:
        shrink_bound_to_half(plan)
    plan.settle_user_words()
    return plan.to_decision() if plan.bound() < Plan(window, budget).bound() else Decision()


def decide_after_overflow(window: Window, budget: Budget, *, config: PolicyConfig) -> Decision:
    """Return the edits that make the next request differ from the refused one.

    There are none if a learned limit or less output already makes it differ.

    Raises:
        CannotFit: No edit makes the request smaller.
    """
    if (over := decide_media_over_limits(window, budget)).edits:
        return over  # it was refused for its bytes
    plan = Plan(window, budget)
    last = window.last_call
    output = budget.max_output
    if (
        not window.accounting.overflow_without_numbers
    ):  # else the limit is only guessed from what was refused
        output = min(output, budget.limit - plan.bound())
    if window.accounting.overflow_without_numbers and hides_on_refusal(window):
        decision = decide_aggressive_hiding(window, budget, config=config)
        if decision.edits:
            return decision
    try:
        smaller = not window.accounting.overflow_without_numbers and add_edits_to_fit(
            window, budget, ()
        )
        if smaller or (last is not None and output < last.body.max_output):
            return Decision()  # with less output it is another request already
    except CannotFit:
        return Decision()  # the error is raised when the request is made again
    decision = decide_aggressive_hiding(window, budget, config=config)
    if not decision.edits:
        raise build_cannot_fit_error(plan, refusal="")
    return decision


def drop_oldest_half(plan: Plan) -> None:
    """Drop the oldest half of the visible messages. A boundary inside a group moves before the
    group."""
    half = plan.visible_messages // 2
    before = plan.tokens
    with plan.undo_unless(lambda: plan.tokens < before):
        for group in plan.order_for_hiding(plan.visible_groups()):
            if plan.visible_messages - group.message_count < half:
                return
            plan.drop(group, OVERFLOW_REASON)


def shrink_bound_to_half(plan: Plan) -> None:
    """Hide content in the usual order until half of the refused size is left."""
    most = Plan(plan.window, plan.budget).bound() // 2
    hide_in_order(plan, lambda: plan.bound() <= most, OVERFLOW_REASON)


def _make_enough_check(plan: Plan) -> Callable[[], bool]:
    has_limit = (
        plan.window.accounting.learned_limit is not None
        and not plan.window.accounting.overflow_without_numbers
    )
    if not has_limit or plan.window.settings.policy == "compact":
        return lambda: plan.bytes <= UNKNOWN_LIMIT_TARGET_BYTES
    return lambda: plan.bound() <= plan.budget.max_input_bound


def choose_policy_after_error(
    failure_kind: str, config: PolicyConfig, rejected_texts: frozenset[str]
) -> Policy:
    """Return the policy that runs after an error of this kind, so that the next request differs."""
    match failure_kind:
        case "overflow":
            return partial(decide_after_overflow, config=config)
        case "rejected":
            return partial(decide_masks_before_retry, blamed_texts=rejected_texts)
        case _:
            return lambda _window, _budget: Decision()
