"""What a search finds: the messages that contain the query as it is written, and then those that
contain most of its words, newest first.

Words match by their beginning, ignoring case. Scripts without spaces are matched by pairs of
characters. Every store finds the same messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from operator import add
from typing import NamedTuple

from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.message import Message, Part, ToolCall, extract_text_or_arguments

_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD_RUNS = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_SPACED_RUNS = re.compile(rf"[^\W{_UNSPACED}]+")
_UNSPACED_RUNS = re.compile(rf"[{_UNSPACED}]+")
_ASCII_SEPARATORS_TO_SPACE = {
    code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")
}

MAX_SEARCH_WORD_CHARS = 60
"""How many characters of a word are indexed."""
MAX_QUERY_WORDS = 64
"""How many different words of a query are searched for, because each word costs a pass over each
text."""
PHRASE_SCORE = 2 * MAX_QUERY_WORDS + 1
"""What a text gains if it contains the query as it is written: more than words can score."""


class Query(NamedTuple):
    """What is searched for."""

    words: list[str]
    """Its words, see `split_query_words`."""
    phrase: str
    """The query as it is written, in lower case; empty if it is one word."""

    @classmethod
    def parse(cls, text: str) -> Query:
        words = split_query_words(text)
        phrase = text.lower().strip(" \t\r\n\"'`")
        return cls(words, "" if [phrase] == words else phrase)

    def score_phrase(self, lower_text: str, word_score: int) -> int:
        """Score the query as it is written. A text that lacks most of its words is not searched."""
        has_words = bool(self.phrase) and word_score >= len(self.words)
        return PHRASE_SCORE if has_words and self.phrase in lower_text else 0


def get_searchable_text(event: Event) -> str:
    """Return the searchable text of an event, without text that only repeats other messages."""
    body = event.body
    if not isinstance(body, MessageAdded | ToolResultRepair) or (
        isinstance(body, MessageAdded) and body.recalled
    ):
        return ""
    return get_message_search_text(body.message)


def get_message_search_text(message: Message) -> str:
    """Return the text of a message, without its calls of recall tools."""
    texts = (get_part_search_text(part) for part in message.parts)
    return "\n".join(text for text in texts if text is not None)


def get_part_search_text(part: Part) -> str | None:
    """Return the searchable text of a part, or None."""
    asks = isinstance(part, ToolCall) and part.name in RECALL_TOOL_NAMES
    return None if asks else extract_text_or_arguments(part)


def split_index_words(text: str) -> set[str]:
    """Return the words by which a text can be found."""
    lower_text = text.lower()
    if lower_text.isascii():
        runs = set(lower_text.translate(_ASCII_SEPARATORS_TO_SPACE).split())
        return {run[:MAX_SEARCH_WORD_CHARS] for run in runs}
    words = {run[:MAX_SEARCH_WORD_CHARS] for run in set(_SPACED_RUNS.findall(lower_text))}
    for run in _UNSPACED_RUNS.findall(lower_text):
        words.update(run)
        words.update(map(add, run, run[1:]))
    return words


def split_query_words(query: str) -> list[str]:
    """Return the first different words of a query. Scripts without spaces are split into pairs."""
    words: dict[str, None] = {}
    for match in _WORD_RUNS.finditer(query.lower()):
        run = match[0]
        if len(run) > 1 and _UNSPACED_RUNS.match(run):
            words.update(dict.fromkeys(map(add, run, run[1 : MAX_QUERY_WORDS + 1])))
        else:
            words[run[:MAX_SEARCH_WORD_CHARS]] = None
        if len(words) >= MAX_QUERY_WORDS:
            break
    return list(words)[:MAX_QUERY_WORDS]


def weigh_query_words(query_words: Sequence[str], text_words: Collection[str]) -> dict[str, float]:
    """Weigh the words that a text contains. A word that only begins a word of it counts half."""
    word_list = f" {' '.join(text_words)}"  # one search in it is faster than a look at each word
    return {
        word: 1.0 if word in text_words else 0.5
        for word in query_words
        if word in text_words or f" {word}" in word_list
    }


def score_query_words(query_words: Sequence[str], text_words: Collection[str]) -> int:
    """Score a text: two points for each word that it contains, one for each that only begins a word
    of it."""
    return int(2 * sum(weigh_query_words(query_words, text_words).values()))


def score_text(query: Query, text: str) -> int:
    """Score a text. If it contains none of the words, it is not split."""
    lower_text = text.lower()
    if not any(word in lower_text for word in query.words):
        return 0
    score = score_query_words(query.words, split_index_words(lower_text))
    return score + query.score_phrase(lower_text, score)


def rank_scored_positions(scored: Iterable[tuple[int, int]], limit: int) -> list[int]:
    """Sort positions by score and then by position, newest first."""
    ranking = sorted(((hits, seq) for hits, seq in scored if hits), reverse=True)
    return [seq for _, seq in ranking[:limit]]
