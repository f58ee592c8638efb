"""Every hiding pass makes the context smaller or fails loudly; none goes on without end."""

from __future__ import annotations

import sys
from dataclasses import replace
from unittest.mock import patch

from tests.laws.lives import law
from tests.recording import append, decide, repair
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, counted_stories, stories
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.tokens.counter import compute_input_upper_bound
from trimtab.engine.tokens.piecewise import encode_byte_class_pairs
from trimtab.errors import CannotFit

PATIENCE = 30_000
"""Texts that one decision may count; the longest of these lives ask for some thousands, where many
results are cut to ever less."""


def bound(life: Life, volatile: str | None) -> int:
    """Of all that is seen, by the one margin that holds before and after an edit."""
    window, budget = life.context.window, life.context.budget(volatile)
    whole = budget.head.tokens + window.tokens + budget.volatile
    return compute_input_upper_bound(
        counter=window.counter, new_tokens=whole, learned_ratio=budget.ratio
    )


def each_pass_lowers_the_bound(life: Life, stream: bool, volatile: str | None) -> None:
    context = life.context
    repair(context)
    window, budget = context.window, context.budget(volatile)
    room = replace(budget, max_output=budget.least_output).max_input_bound
    over = Plan(window, budget).bound() > room
    before = bound(life, volatile)
    try:
        edits = decide(context, volatile=volatile)
    except CannotFit:
        return
    assert edits or not over
    for edit in edits:
        assert isinstance(edit, Edit)
        assert edit.op != "reveal"
        tokens, size = window.tokens, window.bytes
        append(context, edit)
        if edit.part is not None:
            assert window.tokens < tokens, f"{edit} does not make the window smaller"
            assert window.bytes <= size, f"{edit} does not make the window smaller"
    # The notice that groups were dropped takes some tokens, once; the pass must win them back.
    assert not edits or bound(life, volatile) < before
    assert Plan(window, context.budget(volatile)).bound() <= room


def comes_to_an_end(life: Life, stream: bool, volatile: str | None) -> None:
    def encode(text: bytes) -> bytes:
        life.lose_patience()
        return encode_byte_class_pairs(text)

    life.patience = PATIENCE
    with patch("trimtab.engine.tokens.piecewise.encode_byte_class_pairs", encode):
        each_pass_lowers_the_bound(life, stream, volatile)
    # What is done between two requests, such as erasing message by message, is no decision.
    life.patience = sys.maxsize


@law(stories, alone=counted_stories)
def test_every_pass_that_hides_something_lowers_the_bound_and_comes_to_an_end(
    story: Story,
) -> Hooks:
    return Hooks(asking=comes_to_an_end if story.ahead else None)
