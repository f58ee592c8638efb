"""What a search shows: the passages of the found messages that hold most of what was asked for.

A word that few passages hold tells more than one that many do: a long result holds nearly every
word once, and the place that is looked for holds the rare ones together.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trimtab.log.message import Message
from trimtab.recall.search_ranking import get_part_search_text, split_index_words
from trimtab.text.identifiers import slice_without_splitting_identifiers
from trimtab.tokens.counter import TokenCounter

MAX_SNIPPETS = 5
"""Passages of one answer."""
MAX_SEARCH_ANSWER_TOKENS = 2_000
"""Of one answer."""
SNIPPET_CHARS = 1_200
"""Of one passage."""
MAX_EXTRA_SNIPPET_CHARS = 200
"""Characters by which a passage may be longer, so that no word at its ends is cut."""
MAX_SEARCHED_MESSAGES = 20
"""Messages that are looked through for passages: those that hold most of the words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
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

    def format_with_handle(self) -> str:
        return f"m{self.seq}.{self.part}: {self.text}"


def format_best_snippets(
    messages: Mapping[int, Message],
    query_words: Sequence[str],
    counter: TokenCounter,
    visible_seqs: Container[int] = (),
) -> str:
    """The best passages of messages by position; those that are `seen` anyway come last."""
    shown: list[str] = []
    room = MAX_SEARCH_ANSWER_TOKENS
    for passage in find_best_snippets(messages, query_words, visible_seqs):
        text = passage.format_with_handle()
        room -= counter.count(text) + 1
        if shown and room < 0:
            break
        shown.append(text)
    return "\n\n".join(shown)


def find_best_snippets(
    messages: Mapping[int, Message], query_words: Sequence[str], visible_seqs: Container[int] = ()
) -> list[Snippet]:
    """Passages with any of the words, best first, no two that overlap; the newest among equals."""
    every = [each for seq, message in messages.items() for each in _cut_into_snippets(seq, message)]
    held = [_matched_words(query_words, passage.words) for passage in every]
    many = len(every) + 1
    weights = {
        word: math.log(many / (0.5 + sum(word in each for each in held))) for word in query_words
    }
    scores = [sum(weights[word] * share for word, share in each.items()) for each in held]
    ranked = sorted(
        (index for index, each in enumerate(held) if each),
        key=lambda i: (every[i].seq in visible_seqs, -scores[i], -every[i].seq, every[i].first),
    )
    chosen: list[Snippet] = []
    for passage in (every[index] for index in ranked):
        if not any(_snippets_overlap(passage, other) for other in chosen):
            chosen.append(passage)
        if len(chosen) == MAX_SNIPPETS:
            break
    return chosen


def _matched_words(query_words: Sequence[str], words: frozenset[str]) -> dict[str, float]:
    """The wanted words that a passage holds; one that only begins a word of it counts half."""
    found: dict[str, float] = {}
    for word in query_words:
        if word in words:
            found[word] = 1.0
        elif any(other.startswith(word) for other in words):
            found[word] = 0.5
    return found


def _cut_into_snippets(seq: int, message: Message) -> Iterator[Snippet]:
    for part, each in enumerate(message.parts):
        if (text := get_part_search_text(each)) is None:
            continue
        for first in range(0, max(1, len(text) - SNIPPET_CHARS // 2), SNIPPET_CHARS // 2):
            last = min(len(text), first + SNIPPET_CHARS)
            piece = slice_without_splitting_identifiers(text, first, last)
            if len(piece) > SNIPPET_CHARS + MAX_EXTRA_SNIPPET_CHARS:
                piece = text[first:last]  # an endless word is cut all the same
            piece = piece.strip()
            shown = f"{'…' if first else ''}{piece}{'…' if last < len(text) else ''}"
            words = frozenset(split_index_words(piece))
            yield Snippet(seq=seq, part=part, first=first, text=shown, words=words)


def _snippets_overlap(one: Snippet, other: Snippet) -> bool:
    same = (one.seq, one.part) == (other.seq, other.part)
    return same and abs(one.first - other.first) < SNIPPET_CHARS
