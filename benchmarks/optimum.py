"""How far `auto`'s meter is from the best schedule that hindsight could find.

A model of the decision alone: each call brings its new tokens; a compaction takes the messages down
to the low-water mark and makes all that survives be written again. The best schedule is found by
exact dynamic programming over all sets of compaction times; the meter runs on the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.core.policies.auto import CAP, LOW, MIN_GAIN, THETA
from trimtab.core.policies.knobs import Goal
from trimtab.core.tokens import piecewise, sizes_of
from trimtab.replay.cache import Rules
from trimtab.replay.conversation import Conversation
from trimtab.replay.run import times_of

HARD = 150_000
"""Tokens of messages at which a compaction is forced, in a window of 200k."""
COUNTER = piecewise("claude_v3")


def over_optimum(conversations: Sequence[Conversation], goal: Goal = "cost") -> float:
    """The meter's cost over the optimum's, all conversations together."""
    mine = best = 0.0
    for conversation in conversations:
        steps = growth(conversation, goal)
        mine += metered(steps, LOW[goal], Rules())
        best += optimal(steps, LOW[goal], Rules())
    return round(mine / best, 3)


def growth(conversation: Conversation, goal: Goal) -> list[tuple[int, bool]]:
    """For each call: the tokens that are new in it, and whether the cache is cold."""
    steps: list[tuple[int, bool]] = []
    times = times_of(conversation)
    new, last = 0, None
    for index, message in enumerate(conversation.messages):
        if message.role == "assistant":
            cold = last is None or times[index] - last > Rules().ttl
            steps.append((new, cold))
            new, last = 0, times[index]
        size = sum(size.tokens for size in sizes_of(message, COUNTER))
        new += min(size, CAP[goal]) if message.results else size
    return steps


def price(size: int, new: int, *, cold: bool, rules: Rules) -> float:
    """One call that keeps everything."""
    return rules.write * size if cold else rules.read * (size - new) + rules.write * new


def metered(steps: list[tuple[int, bool]], low: int, rules: Rules) -> float:
    """What the ski-rental meter pays."""
    size, meter, paid = 0, 0.0, 0.0
    for new, cold in steps:
        size += new
        removed = size - max(low, new)
        if removed >= MIN_GAIN:
            meter += rules.read * removed
            kept = size - removed
            edit = (rules.write - rules.read) * (kept - new)
            if size > HARD or cold or meter >= THETA * edit:
                size, meter = kept, 0.0
                paid += rules.write * size
                continue
        paid += price(size, new, cold=cold, rules=rules)
    return paid


def optimal(steps: list[tuple[int, bool]], low: int, rules: Rules) -> float:
    """What the best schedule pays: the cheapest way to each size that can occur at each call."""
    reach: dict[int, float] = {0: 0.0}
    for new, cold in steps:
        ahead: dict[int, float] = {}
        for before, paid in reach.items():
            size = before + new
            removed = size - max(low, new)
            if size <= HARD or removed < MIN_GAIN:
                keep = paid + price(size, new, cold=cold, rules=rules)
                ahead[size] = min(keep, ahead.get(size, keep))
            if removed >= MIN_GAIN:
                kept = size - removed
                cut = paid + rules.write * kept
                ahead[kept] = min(cut, ahead.get(kept, cut))
        reach = ahead
    return min(reach.values())
