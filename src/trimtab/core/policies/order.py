"""Which results to hide first.

Each order is online and deterministic: it uses what is known at that call, and no model.
"""

from __future__ import annotations

import math

from trimtab.core.rounds import Result
from trimtab.core.uses import Fact, Uses, uses_of
from trimtab.core.window import Window

SIZE_POWER = 0.3
"""How much a large result must earn its place: 0 not at all, 1 token by token."""

KINDS = {"edit": -2.23, "read": 0.15, "search": 0.07, "run": -0.46, "other": 0.0}


def oldest_first(_window: Window, results: list[Result]) -> list[Result]:
    """The baseline."""
    return results


def least_needed(window: Window, results: list[Result]) -> list[Result]:
    """By the odds that the agent will name something that only this result holds.

    The weights are a logistic regression on recorded conversations; see docs/auto.md.
    """
    uses = uses_of(window)
    scored = [(need(uses, uses.facts.get(r.key), r.size.tokens), r.key, r) for r in results]
    scored.sort(key=lambda item: item[:2])
    return [result for _, _, result in scored]


def need(uses: Uses, fact: Fact | None, tokens: int) -> float:
    """Log odds of being needed again, less what its size asks for."""
    if fact is None:
        return 0.0
    named = max((uses.named.get(path, -99) for path in fact.paths), default=-99)
    edited = max((uses.edited.get(path, -99) for path in fact.paths), default=-99)
    size = math.log(tokens + 1)
    return (
        0.82 * math.log1p(len(fact.words))
        + 0.17 * size
        - 0.21 * math.log1p(uses.calls - fact.used)
        - 0.29 * math.log1p(fact.uses)
        - 0.25 * math.log1p(min(99, uses.calls - named))
        - 0.79 * (edited > fact.arrived)
        - 0.15 * fact.superseded
        + KINDS[fact.kind]
        - SIZE_POWER * size
    )
