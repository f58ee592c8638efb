"""Identifiers and paths: the words that tools and code are called by.

A word is a run of letters, digits and underscores, joined by `.`, `/`, `-` or `:`, of five
characters or more, with a letter and with a digit, an underscore, a joint or a capital that follows
a small letter; plain prose has hardly any.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

_IDENTIFIER_CANDIDATE = re.compile(r"[A-Za-z0-9_$]+(?:[./:\\-]+[A-Za-z0-9_$]+)*")
_LINES_OF_IDENTIFIERS = re.compile(
    r"^(?=.{5})(?=.*?[A-Za-z]).*?(?:[0-9_./:\\-]|[a-z][A-Z]).*$", re.MULTILINE
)
"""Of runs of such characters, one a line: those that are no plain word and no plain number."""
_IDENTIFIER_CHARACTER = re.compile(r"[A-Za-z0-9_$./:\\-]")
_HANDLE_OR_RECALL_TOOL = re.compile(r"(?i)\bm\d+(?:\.\d+|-m\d+)?\b|recall|search_history")
"""What asks for something hidden: in a placeholder only our own may stand."""
_RECALL_OFFER = re.compile(r"(?i)\brecall\s+m\d+(?:\.\d+|-m\d+)?|\bm\d+(?:\.\d+|-m\d+)\b")


def count_identifiers(text: str) -> dict[str, int]:
    """The identifiers of a text in order of appearance, each with how often it occurs."""
    counts = Counter(_IDENTIFIER_CANDIDATE.findall(text))
    return {word: counts[word] for word in _LINES_OF_IDENTIFIERS.findall("\n".join(counts))}


class RankedIdentifiers:
    """The identifiers of one text, most frequent first: read once, asked often."""

    __slots__ = ("_ranked", "counts")

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts
        """In order of appearance: how often each occurs."""
        self._ranked: list[str] | None = None

    def list_top(self, limit: int, shown_text: str = "") -> list[str]:
        """Those that occur most often, without the ones that a text shows: at most `limit`, and 20
        characters for each of them on the whole."""
        if limit <= 0:
            return []
        if self._ranked is None:
            self._ranked = sorted(self.counts, key=self.counts.__getitem__, reverse=True)
        chosen: list[str] = []
        room = 20 * limit
        for word in self._ranked:
            if len(chosen) == limit:
                break
            if len(word) + 2 > room:
                continue  # one endless word must not hide all the others
            if _HANDLE_OR_RECALL_TOOL.search(word) or _contains_word(shown_text, word):
                continue
            room -= len(word) + 2
            chosen.append(word)
        return chosen


def _contains_word(text: str, word: str) -> bool:
    """Whether an identifier stands in a text, not only as a part of a longer one."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (before and _IDENTIFIER_CHARACTER.match(before)) and not (
            after and _IDENTIFIER_CHARACTER.match(after)
        ):
            return True
        at = text.find(word, at + 1)
    return False


def replace_recall_offers(quoted_line: str) -> str:
    """A line that is quoted, without what looks like our offer to show something hidden."""
    return _RECALL_OFFER.sub("…", quoted_line)


def slice_without_splitting_identifiers(text: str, start: int, end: int) -> str:
    """The text between two places, with the words that they fall into."""
    while (
        0 < start < len(text)
        and _IDENTIFIER_CHARACTER.match(text[start - 1])
        and _IDENTIFIER_CHARACTER.match(text[start])
    ):
        start -= 1
    while (
        0 < end < len(text)
        and _IDENTIFIER_CHARACTER.match(text[end - 1])
        and _IDENTIFIER_CHARACTER.match(text[end])
    ):
        end += 1
    return text[start:end]


def join_string_values(arguments_json: str) -> str:
    """All string values of a call's arguments, as the tool would see them."""
    return "\n".join(list_string_values(arguments_json))


def list_string_values(arguments_json: str) -> list[str]:
    """The same, each for itself."""
    try:
        return list(_iter_string_values(json.loads(arguments_json)))
    except (ValueError, RecursionError):
        return [arguments_json]


def _iter_string_values(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            yield from _iter_string_values(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _iter_string_values(inner)
