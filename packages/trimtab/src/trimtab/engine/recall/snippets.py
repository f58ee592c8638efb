"""What a search shows: the passages of the found messages that contain most of the words.

A rare word counts more than a frequent one. A long result contains nearly every word once, but the
right place contains the rare words together.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trimtab.engine.log.message import Message
from trimtab.engine.recall.search import get_part_search_text, split_index_words
from trimtab.engine.text.identifiers import slice_without_splitting_identifiers
from trimtab.engine.tokens.counter import TokenCounter

MAX_SNIPPETS = 5
"""Maximum number of passages in one answer."""
MAX_SEARCH_ANSWER_TOKENS = 2_000
"""Maximum number of tokens of one answer."""
SNIPPET_CHARS = 1_200
"""Maximum number of characters of one passage."""
MAX_EXTRA_SNIPPET_CHARS = 200
"""Characters by which a passage may be longer, so that no word at its ends is cut."""
MAX_SEARCHED_MESSAGES = 20
"""Maximum number of messages to search for passages, those with most of the words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A passage of one part of a message."""

    seq: int
    """Position of the message."""
    part: int
    """Index of the part."""
    first: int
    """Offset of its first character."""
    text: str
    """The original text, with `…` if the part continues."""
    words: frozenset[str]
    """The words that were found in it."""

    def format_with_handle(self) -> str:
        return f"m{self.seq}.{self.part}: {self.text}"


def format_best_snippets(
    messages: Mapping[int, Message],
    query_words: Sequence[str],
    counter: TokenCounter,
    visible_seqs: Container[int] = (),
) -> str:
    """Format the best passages of messages by position. Visible messages come last."""
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
    """Find passages with any of the words, best first and then newest, without overlaps."""
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
    """Weigh the words that a passage contains. A word that only begins a word of it counts half."""
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
