"""Draws that are the same for a seed on every Python, whatever was drawn elsewhere."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Only `random.random` is used: it alone is promised to stay the same in later Pythons.

    Each step of a conversation has dice of its own. A change in Trimtab that makes one step draw
    more or less therefore leaves the other steps as they were.
    """

    def __init__(self, *seed: object) -> None:
        self._random = random.Random("/".join(map(str, seed))).random  # noqa: S311 - no secret

    def chance(self, share: float) -> bool:
        """True for this share of all draws."""
        return self._random() < share

    def share(self) -> float:
        """A number from 0 up to, but not including, 1."""
        return self._random()

    def below(self, end: int) -> int:
        """An integer from 0 up to, but not including, `end`."""
        return int(self._random() * end)

    def between(self, first: int, last: int) -> int:
        """An integer from `first` to `last`, both included."""
        return first + self.below(last - first + 1)

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some_of(self, choices: Sequence[T], most: int) -> list[T]:
        """At most so many of the choices, each once."""
        rest = list(choices)
        return [rest.pop(self.below(len(rest))) for _ in range(min(most, len(rest)))]

    def hex(self, digits: int) -> str:
        return "".join("0123456789abcdef"[self.below(16)] for _ in range(digits))

    def base64(self, size: int) -> str:
        """So many bytes, written as base64."""
        return base64.b64encode(bytes(self.below(256) for _ in range(size))).decode()
