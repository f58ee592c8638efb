"""Which results to hide first: far recall at an equal budget of visible tool results.

At every call results are hidden, in some order, until 10,000 tokens of them are visible. `oracle`
knows the rest of the conversation and hides what the fewest later calls need, token by token.
`order_gain` is the way from oldest-first (0) to that oracle (1) that `auto` goes: its order, and
placeholders that name what they hide and count in the budget. `order_gain_alone` is the order with
bare placeholders. `order_gain_equal_cost` is taken between runs of `auto` itself, whose costs are
printed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.engine.policy.auto import ResultOrder, build_auto_policy, mask_result_with_names
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.planning.plan import Decision, Plan, Policy
from trimtab.engine.policy.planning.relevance import order_least_needed_first, order_oldest_first
from trimtab.engine.policy.preset_steps import list_maskable_results
from trimtab.engine.window.structure import ToolResultView
from trimtab.engine.window.window import Window
from trimtab.replay.billing import CacheRules
from trimtab.replay.references import EarlierReference, find_earlier_references
from trimtab.replay.runner import ReplayedCall, ReplaySetup, replay_conversation
from trimtab.replay.selection import RecordedConversation

BUDGET = 10_000
"""Tokens of visible tool results."""


def budgeted(order: ResultOrder, *, naming: bool) -> Policy:
    """Hide in an order until the budget holds; nothing else is ever hidden."""

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        visible = sum(r.size.tokens for r in window.results.values())
        if visible > BUDGET:
            for result in order(window, list_maskable_results(plan, PolicyConfig())):
                if visible <= BUDGET:
                    break
                visible -= result.size.tokens
                if naming:
                    mask_result_with_names(plan, result, "budget")
                else:
                    plan.mask(result.entry, result.part, "budget")
                visible += plan.part_size(result.entry, result.part).tokens
        return plan.to_decision()

    return decide


def oracle(wanted: Mapping[int, list[EarlierReference]]) -> ResultOrder:
    """Fewest later needs for each token first; no order could know this."""
    later: dict[int, list[int]] = {}
    for index in sorted(wanted):
        for need in wanted[index]:
            if need.tool_only:
                for source in need.sources:
                    later.setdefault(source, []).append(index)

    def order(window: Window, results: list[ToolResultView]) -> list[ToolResultView]:
        positions = list(window.entries)

        def value(result: ToolResultView) -> tuple[float, int]:
            uses = later.get(bisect_left(positions, result.seq), [])
            ahead = len(uses) - bisect_left(uses, len(positions))
            return ahead / max(1, result.size.tokens), result.seq

        return sorted(results, key=value)

    return order


def order_gain(conversations: Sequence[RecordedConversation]) -> dict[str, Any]:
    far: dict[str, list[ReplayedCall]] = {}
    for conversation in conversations:
        wanted = find_earlier_references(conversation.messages)
        best = oracle(wanted)
        policies = {
            "oldest": budgeted(order_oldest_first, naming=False),
            "ours": budgeted(order_least_needed_first, naming=True),
            "ours alone": budgeted(order_least_needed_first, naming=False),
            "oracle": budgeted(best, naming=False),
            "auto oldest": build_auto_policy(
                PolicyConfig(), result_order=order_oldest_first, max_names=0
            ),
            "auto ours": build_auto_policy(PolicyConfig()),
            "auto oracle": build_auto_policy(PolicyConfig(), result_order=best, max_names=0),
        }
        for name, policy in policies.items():
            options = {
                "policy": policy,
                "context_window": 1_000_000 if "auto" not in name else 200_000,
            }
            setup = ReplaySetup(name=name, options=options)
            run = replay_conversation(conversation, setup, {"anthropic": CacheRules()}, wanted)
            far.setdefault(name, []).extend(run.calls)
    # Its placeholders are part of what is measured: names in them count.
    recall = {
        name: sum(c.far_seen + c.far_listed for c in calls) / sum(c.far for c in calls)
        for name, calls in far.items()
    }
    cost = {
        name: sum(c.bill["anthropic"].cost(CacheRules()) + 5 * c.output for c in calls) / len(calls)
        for name, calls in far.items()
    }

    def gain(mine: str, oldest: str, best: str) -> float:
        return round((recall[mine] - recall[oldest]) / (recall[best] - recall[oldest]), 3)

    return {
        "order_gain": gain("ours", "oldest", "oracle"),
        "order_gain_alone": gain("ours alone", "oldest", "oracle"),
        "order_gain_equal_cost": gain("auto ours", "auto oldest", "auto oracle"),
        "order_far_recall": {name: round(value, 4) for name, value in recall.items()},
        "order_cost": {name: round(value) for name, value in cost.items()},
    }
