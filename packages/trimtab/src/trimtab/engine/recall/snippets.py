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
    passages = [
        passage for seq, message in messages.items() for passage in _cut_into_passages(seq, message)
    ]
    shares = [_weigh_passage(passage, query.words) for passage in passages]
    counts = Counter(word for each in shares for word in each)
    rarity = {word: math.log((len(passages) + 1) / (0.5 + counts[word])) for word in query.words}
    ranking = sorted(
        (
            query.phrase not in passage.cut_text().lower(),
            passage.seq in visible_seqs,
            -sum(rarity[word] * share for word, share in each.items()),
            -passage.seq,
            passage.first,
            index,
        )
        for index, (passage, each) in enumerate(zip(passages, shares, strict=True))
        if each
    )
    selection: list[_Passage] = []
    for *_, index in ranking:
        if not any(_passages_overlap(passages[index], other) for other in selection):
            selection.append(passages[index])
        if len(selection) == MAX_SNIPPETS:
            break
    return [_make_snippet(passage) for passage in selection]


class _Passage(NamedTuple):
    """A place in a text. Its text is cut out when it is needed, because they overlap."""

    seq: int
    """Position of the message."""
    part: int
    """Index of the part."""
    whole_text: str
    """The text of the part."""
    first: int
    """Offset of its first character."""

    @property
    def last(self) -> int:
        return min(len(self.whole_text), self.first + SNIPPET_CHARS)

    def cut_text(self) -> str:
        return slice_without_splitting_identifiers(
            self.whole_text, self.first, self.last, MAX_EXTRA_SNIPPET_CHARS
        ).strip()


def _cut_into_passages(seq: int, message: Message) -> Iterator[_Passage]:
    step = SNIPPET_CHARS // 2
    for part, each in enumerate(message.parts):
        text = get_part_search_text(each)
        if text is not None:
            for first in range(0, max(1, len(text) - step), step):
                yield _Passage(seq, part, text, first)


def _weigh_passage(passage: _Passage, query_words: Sequence[str]) -> dict[str, float]:
    """Weigh the words that a passage contains. A text that contains none is not split."""
    lower_text = passage.cut_text().lower()
    if not any(word in lower_text for word in query_words):
        return {}
    return weigh_query_words(query_words, split_index_words(lower_text))


def _make_snippet(passage: _Passage) -> Snippet:
    before = "…" if passage.first else ""
    after = "…" if passage.last < len(passage.whole_text) else ""
    return Snippet(
        seq=passage.seq,
        part=passage.part,
        first=passage.first,
        text=f"{before}{passage.cut_text()}{after}",
    )


def _passages_overlap(one: _Passage, other: _Passage) -> bool:
    same = (one.seq, one.part) == (other.seq, other.part)
    return same and abs(one.first - other.first) < SNIPPET_CHARS
