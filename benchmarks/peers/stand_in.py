"""The summariser of every peer, so that none gains by a better model; standard library alone.

A summary has 1,200 characters, about 300 tokens: the first 300 of what it is given, then the paths
and identifiers that occur most often in it. A good model's summary names files as well, so this is
kinder to a peer than first words alone; it is no measure of how well a model would do it.
"""

from __future__ import annotations

import re
from collections import Counter

CHARACTERS = 1_200
OPENING = 300
NAMES = re.compile(r"[\w.~-]*(?:/[\w.-]+)+|[A-Za-z_]\w{5,}(?:\.\w+)*")


class StandIn:
    """Writes summaries and keeps account of what it read for them."""

    def __init__(self) -> None:
        self.read = 0
        """Characters of all prompts since it was last asked how many."""

    def summary(self, prompt: str, told: str | None = None) -> str:
        """Of a prompt; `told` is the part of it that is the conversation, where it can be told
        apart from the peer's instructions."""
        self.read += len(prompt)
        return summary(prompt if told is None else told)

    def taken(self) -> int:
        """Characters read since the last time, which starts the count anew."""
        read, self.read = self.read, 0
        return read


def summary(text: str) -> str:
    opening = text[:OPENING]
    left = CHARACTERS - len(opening) - 1
    names: list[str] = []
    for name, _ in Counter(NAMES.findall(text)).most_common(200):
        if len(name) + 1 <= left and len(name) <= 120:
            names.append(name)
            left -= len(name) + 1
    return f"{opening}\n{' '.join(names)}"
