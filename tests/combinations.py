"""Combinations of parameters: a few in the ordinary lanes, all of them in `make thorough`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def in_pairs(*dimensions: Sequence[Any], together: int = 2) -> list[Any]:
    """Return all combinations of the values of some dimensions, for `parametrize`.

    Those that are marked `soak` add nothing to the others but more than two values at a time.
    With `together=1` the dimensions know nothing of each other: each value is met once.
    """
    places = list(combinations(range(len(dimensions)), together))
    everything = list(product(*dimensions))

    def values_together(values: Sequence[Any]) -> set[Any]:
        return {(place, *(values[at] for at in place)) for place in places}

    due = set[Any]().union(*map(values_together, everything))
    selection = list[Any]()
    while due:
        selection.append(max(everything, key=lambda values: len(values_together(values) & due)))
        due -= values_together(selection[-1])
    return [
        pytest.param(*values, marks=() if values in selection else pytest.mark.soak)
        for values in everything
    ]
