"""Every call: bound the messages, cap results, bound the history, mask the middle, drop rounds.

Counts in `bytes/4`. The cap is taken before a result is first sent; the history is all that
stands before the newest user message; masks and drops concern the turn since then.
"""

from __future__ import annotations

from trimtab.core.budget import Budget, actor_message_limit, quarter
from trimtab.core.plan import Cap, Decision, Plan, Policy
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.steps import cap_history, cap_messages, cap_results, mask_middle
from trimtab.core.window import Window

MAX_HISTORY_TOKENS = 20_000
MAX_TOOL_RESULT_TOKENS = 8_000
KEEP_FIRST = 2
KEEP_LAST = 5


def layered(knobs: Knobs) -> Policy:
    history = knobs.max_history_tokens
    history = MAX_HISTORY_TOKENS if history is None else history

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        cap_messages(plan, actor_message_limit(budget.limit))
        cap_results(plan, knobs, Cap(amount=MAX_TOOL_RESULT_TOKENS, unit="bytes/4"))
        cap_history(plan, history)
        mask_middle(plan, knobs, KEEP_FIRST, KEEP_LAST)
        drop_rounds(plan)
        return plan.decision(
            summary_tokens=knobs.summary.max_tokens, frontier=frontier(plan, knobs)
        )

    return decide


def drop_rounds(plan: Plan) -> None:
    """Drop the oldest rounds of the active turn; history and the newest round stay.

    For some models and texts the upper bound is reached before `bytes/4` is: it counts here, too,
    or else the guard would hide what the rounds could have made room for.
    """
    room, most = plan.budget.available, plan.budget.most_input
    why, start = f"over {room} tokens", plan.window.turn_start
    plan.drop_oldest(lambda: quarter(plan.bytes) <= room, why, after=start)
    why = f"over {most} tokens by the upper bound"
    plan.drop_oldest(lambda: plan.bound() <= most, why, after=start)


def frontier(plan: Plan, knobs: Knobs) -> int | None:
    """The first result that the next mask would take: the first one behind those always kept."""
    first = KEEP_FIRST if knobs.tool_result_keep_first is None else knobs.tool_result_keep_first
    kept = plan.window.turn_results.ends(first, 0)
    start = plan.window.turn_start
    for result in plan.window.results.values():
        later = result.entry.round.group.index >= start and result.key not in kept
        if later and plan.shows(result):
            return result.seq
    return None
