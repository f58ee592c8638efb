"""What a search finds: the messages that hold most of the words asked for, newest first.

Words match by their beginning, whatever their case. Scripts that write no spaces are matched by
pairs of characters. Each store finds the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trimtab.core.event import Event, Repair, Said
from trimtab.core.message import Message, Part, ToolCall, words_of_part

RECALL = "recall"
SEARCH = "search_history"
RECALL_TOOLS = (RECALL, SEARCH)
"""The names of the tools by which a model looks up what is hidden."""

_RUNS = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

MAX_WORD = 60
"""Characters of a word by which it is found."""


def searchable(event: Event) -> str:
    """What a search sees of an event; nothing of what only repeats what stands elsewhere."""
    body = event.body
    if not isinstance(body, Said | Repair) or (isinstance(body, Said) and body.recalled):
        return ""
    return texts_of(body.message)


def texts_of(message: Message) -> str:
    """All that a message says, but for what it asks the recall tools."""
    said = (found_by(part) for part in message.parts)
    return "\n".join(text for text in said if text is not None)


def found_by(part: Part) -> str | None:
    """What of a part a search looks through; None for what it does not."""
    asks = isinstance(part, ToolCall) and part.name in RECALL_TOOLS
    return None if asks else words_of_part(part)


def words_of(text: str) -> set[str]:
    """The words that a text can be found by."""
    found: set[str] = set()
    for run in _RUNS.findall(text.lower()):
        if _UNSPACED.match(run):
            found.update(run)
            found.update(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.add(run[:MAX_WORD])
    return found


def asked(query: str) -> list[str]:
    """The words of a query, each once; a run of an unspaced script counts pair by pair."""
    found: dict[str, None] = {}
    for run in _RUNS.findall(query.lower()):
        if _UNSPACED.match(run) and len(run) > 1:
            found.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)))
        else:
            found[run[:MAX_WORD]] = None
    return list(found)


def score(wanted: list[str], words: Iterable[str]) -> int:
    """Two for each wanted word that a text holds, one for each that only begins one of its own."""
    known = set(words)
    return sum(
        2 if word in known else int(any(other.startswith(word) for other in known))
        for word in wanted
    )


def best(scored: Iterable[tuple[int, int]], limit: int) -> list[int]:
    """Positions by score and position: the most words first, then the newest."""
    ranked = sorted(((hits, seq) for hits, seq in scored if hits), reverse=True)
    return [seq for _, seq in ranked[:limit]]
