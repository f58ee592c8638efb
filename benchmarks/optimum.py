"""How far `auto`'s meter is from the best schedule that hindsight could find.

A model of the decision alone: each call brings its new tokens; a compaction takes the messages down
to the low-water mark and makes all that survives be written again. The best schedule is found by
exact dynamic programming over all sets of compaction times; the meter runs on the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.engine.policy.auto import (
    MIN_GAIN_TOKENS,
    PAYBACK_FACTOR,
    RESULT_CAP_TOKENS_BY_GOAL,
    TARGET_TOKENS_BY_GOAL,
)
from trimtab.engine.policy.config import Goal
from trimtab.engine.tokens.counter import make_piecewise_counter, measure_message_parts
from trimtab.replay.billing import CacheRules
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.times import estimate_message_times

HARD = 150_000
"""Tokens of messages at which a compaction is forced, in a window of 200k."""
COUNTER = make_piecewise_counter("claude_v3")


def over_optimum(conversations: Sequence[RecordedConversation], goal: Goal = "cost") -> float:
    """The meter's cost over the optimum's, all conversations together."""
    mine = best = 0.0
    for conversation in conversations:
        steps = growth(conversation, goal)
        mine += metered(steps, TARGET_TOKENS_BY_GOAL[goal], CacheRules())
        best += optimal(steps, TARGET_TOKENS_BY_GOAL[goal], CacheRules())
    return round(mine / best, 3)


def growth(conversation: RecordedConversation, goal: Goal) -> list[tuple[int, bool]]:
    """For each call: the tokens that are new in it, and whether the cache is cold."""
    steps: list[tuple[int, bool]] = []
    times = estimate_message_times(conversation)
    new, last = 0, None
    for index, message in enumerate(conversation.messages):
        if message.role == "assistant":
            cold = last is None or times[index] - last > CacheRules().ttl
            steps.append((new, cold))
            new, last = 0, times[index]
        size = sum(size.tokens for size in measure_message_parts(message, COUNTER))
        new += min(size, RESULT_CAP_TOKENS_BY_GOAL[goal]) if message.results else size
    return steps


def price(size: int, new: int, *, cold: bool, rules: CacheRules) -> float:
    """One call that keeps everything."""
    return rules.write * size if cold else rules.read * (size - new) + rules.write * new


def metered(steps: list[tuple[int, bool]], low: int, rules: CacheRules) -> float:
    """What the ski-rental meter pays."""
    size, meter, paid = 0, 0.0, 0.0
    for new, cold in steps:
        size += new
        removed = size - max(low, new)
        if removed >= MIN_GAIN_TOKENS:
            meter += rules.read * removed
            kept = size - removed
            edit = (rules.write - rules.read) * (kept - new)
            if size > HARD or cold or meter >= PAYBACK_FACTOR * edit:
                size, meter = kept, 0.0
                paid += rules.write * size
                continue
        paid += price(size, new, cold=cold, rules=rules)
    return paid


def optimal(steps: list[tuple[int, bool]], low: int, rules: CacheRules) -> float:
    """What the best schedule pays: the cheapest way to each size that can occur at each call."""
    reach: dict[int, float] = {0: 0.0}
    for new, cold in steps:
        ahead: dict[int, float] = {}
        for before, paid in reach.items():
            size = before + new
            removed = size - max(low, new)
            if size <= HARD or removed < MIN_GAIN_TOKENS:
                keep = paid + price(size, new, cold=cold, rules=rules)
                ahead[size] = min(keep, ahead.get(size, keep))
            if removed >= MIN_GAIN_TOKENS:
                kept = size - removed
                cut = paid + rules.write * kept
                ahead[kept] = min(cut, ahead.get(kept, cut))
        reach = ahead
    return min(reach.values())
