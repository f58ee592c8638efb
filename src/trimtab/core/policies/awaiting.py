"""`auto` where a model writes the summaries: they have a price, and they take their time.

A summary that is wanted is named, not made; until it comes nothing is edited, for what is edited
now would be written to the cache twice. Where masks alone are the better bargain, or no summary
comes, they do not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.core.plan import Plan
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.summaries import size_before
from trimtab.core.rounds import Group
from trimtab.core.summary_text import ASKED_TOKENS
from trimtab.core.window import Window

PATIENCE = 3
"""Calls for which masks wait for a summary that was named."""
OUTPUT_WEIGHT = 5.0
"""What an output token of a summary costs, in its input tokens."""
PROMPT_TOKENS = 450
"""Of what a summarising model is told beside the history."""
SHOWN_TOKENS = 300
"""Of one message that it is shown, at most."""


def summary_price(window: Window, older: Sequence[Group], knobs: Knobs) -> float:
    """S: what asking for a summary of these groups costs, in input tokens of the main model."""
    shown = sum(min(group.tokens, SHOWN_TOKENS * group.messages) for group in older)
    read = shown + size_before(window, window.summary) + PROMPT_TOKENS
    return knobs.summary.price * (read + OUTPUT_WEIGHT * ASKED_TOKENS)


def oldest_down_to(plan: Plan, older: Sequence[Group], low: int, summary: int) -> list[Group]:
    """As many of the oldest groups as leave no more tokens than `low` beside their summary."""
    need = plan.tokens - plan.words - low + summary - size_before(plan.window, plan.summary)
    taken: list[Group] = []
    for group in older:
        if need <= 0:
            break
        need -= plan.group_tokens(group)
        taken.append(group)
    return taken


def waited(window: Window) -> int:
    """Calls since a summary was first named that has not come."""
    return 0 if summarised_since(window) else int((window.note or {}).get("waited", 0))


def summarised_since(window: Window) -> bool:
    """Whether a summary was put in place since the last call: what was metered is paid."""
    last = window.last_call
    return last is not None and window.summary_by > last.body.position


def unlikely(window: Window) -> bool:
    """Whether a summary is not to be counted on: it failed lately, or nobody has made it."""
    return waited(window) >= PATIENCE or window.summaries.waits(window.said) > 0
