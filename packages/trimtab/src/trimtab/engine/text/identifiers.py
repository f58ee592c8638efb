"""Identifiers and paths: the names that tools and code use.

A word is a run of letters, digits and underscores, joined by `.`, `/`, `-` or `:`. It has five
characters or more, at least one of them alphabetic. It also has a digit, an underscore, a joining
character, or a capital in its middle. Plain prose has hardly any.
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
"""Of such runs of characters, one per line: those that are not a plain word or number."""
_IDENTIFIER_CHARACTER = re.compile(r"[A-Za-z0-9_$./:\\-]")
_HANDLE_OR_RECALL_TOOL = re.compile(r"(?i)\bm\d+(?:\.\d+|-m\d+)?\b|recall|search_history")
"""A text that asks for hidden content. In a placeholder only our own may appear."""
_RECALL_OFFER = re.compile(r"(?i)\brecall\s+m\d+(?:\.\d+|-m\d+)?|\bm\d+(?:\.\d+|-m\d+)\b")


def count_identifiers(text: str) -> dict[str, int]:
    """Count the identifiers of a text, in order of appearance."""
    counts = Counter(_IDENTIFIER_CANDIDATE.findall(text))
    return {word: counts[word] for word in _LINES_OF_IDENTIFIERS.findall("\n".join(counts))}


class RankedIdentifiers:
    """The identifiers of one text, most frequent first. They are read once and used often."""

    __slots__ = ("_ranked", "counts")

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts
        """How often each occurs, in order of appearance."""
        self._ranked: list[str] | None = None

    def list_top(self, limit: int, shown_text: str = "") -> list[str]:
        """Return the most frequent identifiers that a text does not show.

        At most `limit`, and on average 20 characters each.
        """
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
    """Whether an identifier is in a text, and not only as a part of a longer one."""
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
    """Return a quoted line without anything that looks like our offer to show hidden content."""
    return _RECALL_OFFER.sub("…", quoted_line)


def slice_without_splitting_identifiers(text: str, start: int, end: int) -> str:
    """Return the text between two offsets, extended to whole words."""
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
    """Join all string values of a call's arguments, as the tool would see them."""
    return "\n".join(list_string_values(arguments_json))


def list_string_values(arguments_json: str) -> list[str]:
    """List all string values of a call's arguments."""
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
