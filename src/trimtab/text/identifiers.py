"""Identifiers and paths: the words that tools and code are called by.

A word is a run of letters, digits and underscores, joined by `.`, `/`, `-` or `:`, of five
characters or more, with a letter and with a digit, an underscore, a joint or a capital that follows
a small letter; plain prose has hardly any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

_IDENTIFIER_CANDIDATE = re.compile(r"[A-Za-z0-9_$]+(?:[./:\\-]+[A-Za-z0-9_$]+)*")
_IDENTIFIER_MARK = re.compile(r"[0-9_./:\\-]|[a-z][A-Z]")
_IDENTIFIER_CHARACTER = re.compile(r"[A-Za-z0-9_$./:\\-]")
_LETTER = re.compile(r"[A-Za-z]")
_HANDLE_OR_RECALL_TOOL = re.compile(r"(?i)\bm\d+(?:\.\d+|-m\d+)?\b|recall|search_history")
"""What asks for something hidden: in a placeholder only our own may stand."""
_RECALL_OFFER = re.compile(r"(?i)\brecall\s+m\d+(?:\.\d+|-m\d+)?|\bm\d+(?:\.\d+|-m\d+)\b")


def count_identifiers(text: str) -> dict[str, int]:
    """The words of a text in order of appearance, each with how often it occurs."""
    counts: dict[str, int] = {}
    for word in _IDENTIFIER_CANDIDATE.findall(text):
        counts[word] = counts.get(word, 0) + 1
    return {
        word: count
        for word, count in counts.items()
        if len(word) >= 5 and _IDENTIFIER_MARK.search(word) and _LETTER.search(word)
    }


def format_top_identifiers(text: str, limit: int, excluded_text: str = "") -> str:
    """The words that a text names most often, as a list; without those that `kept` has too.

    At most `limit` words, and 20 characters for each of them on the whole.
    """
    if limit <= 0:
        return ""
    known = count_identifiers(excluded_text) if excluded_text else {}
    found = count_identifiers(text)
    named = [
        word for word in found if word not in known and not _HANDLE_OR_RECALL_TOOL.search(word)
    ]
    ranked = sorted(named, key=lambda word: -found[word])
    chosen: list[str] = []
    room = 20 * limit
    for word in ranked:
        if len(chosen) == limit:
            break
        if len(word) + 2 > room:
            continue  # one endless word must not hide all the others
        room -= len(word) + 2
        chosen.append(word)
    return ", ".join(chosen)


def strip_recall_handles(text: str) -> str:
    """A line that is quoted, without what looks like our offer to show something hidden."""
    return _RECALL_OFFER.sub("…", text)


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
