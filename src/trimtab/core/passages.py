"""What a search shows: the passages of the found messages that hold most of what was asked for.

A word that few passages hold tells more than one that many do: a long result holds nearly every
word once, and the place that is looked for holds the rare ones together.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trimtab.core.message import Message
from trimtab.core.search import found_by, words_of
from trimtab.core.tokens import Counter
from trimtab.core.words import whole

MAX_HITS = 5
"""Passages of one answer."""
MAX_TOKENS = 2_000
"""Of one answer."""
CHARS = 1_200
"""Of one passage."""
STRETCH = 200
"""Characters by which a passage may be longer, so that no word at its ends is cut."""
LOOKED_AT = 20
"""Messages that are looked through for passages: those that hold most of the words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Some of one part of a message."""

    seq: int
    """Position of the message."""
    part: int
    """Index of the part."""
    first: int
    """Character at which it begins."""
    text: str
    """As it was said, with `…` where the part goes on."""
    words: frozenset[str]
    """By which it is found."""

    def shown(self) -> str:
        return f"m{self.seq}.{self.part}: {self.text}"


def found(
    said: Mapping[int, Message], wanted: Sequence[str], counter: Counter, seen: Container[int] = ()
) -> str:
    """The best passages of messages by position; those that are `seen` anyway come last."""
    shown: list[str] = []
    room = MAX_TOKENS
    for passage in best(said, wanted, seen):
        text = passage.shown()
        room -= counter.count(text) + 1
        if shown and room < 0:
            break
        shown.append(text)
    return "\n\n".join(shown)


def best(
    said: Mapping[int, Message], wanted: Sequence[str], seen: Container[int] = ()
) -> list[Passage]:
    """Passages with any of the words, best first, no two that overlap; the newest among equals."""
    every = [each for seq, message in said.items() for each in _cut(seq, message)]
    held = [_held(wanted, passage.words) for passage in every]
    many = len(every) + 1
    weights = {word: math.log(many / (0.5 + sum(word in each for each in held))) for word in wanted}
    scores = [sum(weights[word] * share for word, share in each.items()) for each in held]
    ranked = sorted(
        (index for index, each in enumerate(held) if each),
        key=lambda i: (every[i].seq in seen, -scores[i], -every[i].seq, every[i].first),
    )
    chosen: list[Passage] = []
    for passage in (every[index] for index in ranked):
        if not any(_overlap(passage, other) for other in chosen):
            chosen.append(passage)
        if len(chosen) == MAX_HITS:
            break
    return chosen


def _held(wanted: Sequence[str], words: frozenset[str]) -> dict[str, float]:
    """The wanted words that a passage holds; one that only begins a word of it counts half."""
    found: dict[str, float] = {}
    for word in wanted:
        if word in words:
            found[word] = 1.0
        elif any(other.startswith(word) for other in words):
            found[word] = 0.5
    return found


def _cut(seq: int, message: Message) -> Iterator[Passage]:
    for part, each in enumerate(message.parts):
        if (text := found_by(each)) is None:
            continue
        for first in range(0, max(1, len(text) - CHARS // 2), CHARS // 2):
            last = min(len(text), first + CHARS)
            piece = whole(text, first, last)
            if len(piece) > CHARS + STRETCH:
                piece = text[first:last]  # an endless word is cut all the same
            piece = piece.strip()
            shown = f"{'…' if first else ''}{piece}{'…' if last < len(text) else ''}"
            words = frozenset(words_of(piece))
            yield Passage(seq=seq, part=part, first=first, text=shown, words=words)


def _overlap(one: Passage, other: Passage) -> bool:
    same = (one.seq, one.part) == (other.seq, other.part)
    return same and abs(one.first - other.first) < CHARS
