"""What a search finds: the messages that contain most of the words, newest first.

Words match by their beginning, ignoring case. Scripts without spaces are matched by pairs of
characters. Every store finds the same messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.event import Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.message import Message, Part, ToolCall, extract_text_or_arguments

_WORD_RUNS = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

MAX_SEARCH_WORD_CHARS = 60
"""How many characters of a word are indexed."""


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
    said = (get_part_search_text(part) for part in message.parts)
    return "\n".join(text for text in said if text is not None)


def get_part_search_text(part: Part) -> str | None:
    """Return the searchable text of a part, or None."""
    asks = isinstance(part, ToolCall) and part.name in RECALL_TOOL_NAMES
    return None if asks else extract_text_or_arguments(part)


def split_index_words(text: str) -> set[str]:
    """Return the words by which a text can be found."""
    found: set[str] = set()
    for run in _WORD_RUNS.findall(text.lower()):
        if _UNSPACED.match(run):
            found.update(run)
            found.update(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.add(run[:MAX_SEARCH_WORD_CHARS])
    return found


def split_query_words(query: str) -> list[str]:
    """Return the different words of a query. Scripts without spaces are split into pairs."""
    found: dict[str, None] = {}
    for run in _WORD_RUNS.findall(query.lower()):
        if _UNSPACED.match(run) and len(run) > 1:
            found.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
        else:
            found[run[:MAX_SEARCH_WORD_CHARS]] = None
    return list(found)


def score_query_words(query_words: list[str], text_words: Iterable[str]) -> int:
    """Score a text: two points for each word that it contains, one for each that only begins a word
    of it."""
    known = set(text_words)
    return sum(
        2 if word in known else int(any(other.startswith(word) for other in known))
        for word in query_words
    )


def score_text(query_words: list[str], text: str) -> int:
    """Score a text. If it contains none of the words, it is not split."""
    lowered = text.lower()
    if not any(word in lowered for word in query_words):
        return 0
    return score_query_words(query_words, split_index_words(lowered))


def rank_scored_positions(scored: Iterable[tuple[int, int]], limit: int) -> list[int]:
    """Sort positions by score and then by position, newest first."""
    ranked = sorted(((hits, seq) for hits, seq in scored if hits), reverse=True)
    return [seq for _, seq in ranked[:limit]]
