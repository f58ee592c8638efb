"""What a search shows: the passages of the found messages that contain the query as it is written,
and then those that contain most of its words.

A rare word counts more than a frequent one. A long result contains nearly every word once, but the
right place contains the rare words together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trimtab.engine.log.message import Message
from trimtab.engine.recall.search import (
    Query,
    get_part_search_text,
    split_index_words,
    weigh_query_words,
)
from trimtab.engine.text.identifiers import slice_without_splitting_identifiers
from trimtab.engine.text.quoting import indent_further_lines
from trimtab.engine.tokens.counter import TokenCounter

MAX_SNIPPETS = 5
"""Maximum number of passages in one answer."""
MAX_SEARCH_ANSWER_TOKENS = 2_000
"""Maximum number of tokens of one answer."""
SNIPPET_CHARS = 1_200
"""Maximum number of characters of one passage."""
MAX_EXTRA_SNIPPET_CHARS = 200
"""Characters by which a passage may be longer, so that no word at its ends is cut. A longer word is
cut."""
MAX_SEARCHED_MESSAGES = 20
"""Maximum number of messages to search for passages, and of those that the model does not see."""


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

    def format_with_handle(self) -> str:
        """Return it after its handle. No line of it looks like another passage."""
        return f"m{self.seq}.{self.part}: {indent_further_lines(self.text)}"


def select_positions(hits: Sequence[int], visible_seqs: Container[int]) -> list[int]:
    """Return the positions to search for passages: the best hits, and the best of those that the
    model does not see."""
    hidden_hits = [seq for seq in hits if seq not in visible_seqs]
    return sorted({*hits[:MAX_SEARCHED_MESSAGES], *hidden_hits[:MAX_SEARCHED_MESSAGES]})


def format_best_snippets(
    messages: Mapping[int, Message],
    query: Query,
    counter: TokenCounter,
    visible_seqs: Container[int] = (),
) -> str:
    """Format the best passages of messages by position."""
    texts: list[str] = []
    room = MAX_SEARCH_ANSWER_TOKENS
    for passage in find_best_snippets(messages, query, visible_seqs):
        text = passage.format_with_handle()
        room -= counter.count(text) + 1
        if texts and room < 0:
            break
        texts.append(text)
    return "\n\n".join(texts)


def find_best_snippets(
    messages: Mapping[int, Message], query: Query, visible_seqs: Container[int] = ()
) -> list[Snippet]:
    """Find passages with any of the words, without overlaps: those with the query as it is written,
    then those the model does not see, each best first and then newest."""
    passage_count = 0
    hits: list[tuple[_Passage, Mapping[str, float]]] = []
    for seq, message in messages.items():
        for passage in _cut_into_passages(seq, message):
            passage_count += 1
            if word_shares := _weigh_passage(passage, query.words):
                hits.append((passage, word_shares))
    counts = Counter(word for _, word_shares in hits for word in word_shares)
    rarity = {word: math.log((passage_count + 1) / (0.5 + counts[word])) for word in query.words}

    def rank(hit: tuple[_Passage, Mapping[str, float]]) -> tuple[object, ...]:
        passage, word_shares = hit
        return (
            query.phrase not in passage.cut_text().lower(),
            passage.seq in visible_seqs,
            -sum(rarity[word] * share for word, share in word_shares.items()),
            -passage.seq,
            passage.first,
        )

    selection: list[_Passage] = []
    for passage, _ in sorted(hits, key=rank):
        if len(selection) < MAX_SNIPPETS and not any(map(passage.overlaps, selection)):
            selection.append(passage)
    return [passage.to_snippet() for passage in selection]


class _Passage(NamedTuple):
    """A place in a text. Its text is cut out when it is needed, because they overlap."""

    seq: int
    """Position of the message."""
    part: int
    """Index of the part."""
    part_text: str
    """The text of the part."""
    first: int
    """Offset of its first character."""

    @property
    def end(self) -> int:
        return min(len(self.part_text), self.first + SNIPPET_CHARS)

    def cut_text(self) -> str:
        return slice_without_splitting_identifiers(
            self.part_text, self.first, self.end, MAX_EXTRA_SNIPPET_CHARS
        ).strip()

    def overlaps(self, other: _Passage) -> bool:
        is_same_part = (self.seq, self.part) == (other.seq, other.part)
        return is_same_part and abs(self.first - other.first) < SNIPPET_CHARS

    def to_snippet(self) -> Snippet:
        before = "…" if self.first else ""
        after = "…" if self.end < len(self.part_text) else ""
        text = f"{before}{self.cut_text()}{after}"
        return Snippet(seq=self.seq, part=self.part, first=self.first, text=text)


def _cut_into_passages(seq: int, message: Message) -> Iterator[_Passage]:
    step = SNIPPET_CHARS // 2
    for index, part in enumerate(message.parts):
        text = get_part_search_text(part)
        if text is not None:
            for first in range(0, max(1, len(text) - step), step):
                yield _Passage(seq, index, text, first)


def _weigh_passage(passage: _Passage, query_words: Sequence[str]) -> dict[str, float]:
    """Weigh the words that a passage contains. A text that contains none is not split."""
    lower_text = passage.cut_text().lower()
    if not any(word in lower_text for word in query_words):
        return {}
    return weigh_query_words(query_words, split_index_words(lower_text))
