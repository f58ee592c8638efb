"""Identifiers and paths: the names that tools and code use.

A word is a run of letters, digits and underscores, joined by `.`, `/`, `-` or `:`. It has five
characters or more, at least one of them alphabetic. It also has a digit, an underscore, a joining
character, or a capital in its middle. Plain prose has hardly any.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from string import ascii_letters, digits
from typing import Any, cast

_LINES_OF_IDENTIFIERS = re.compile(
    r"^(?=.{5})(?=.*?[A-Za-z]).*?(?:[0-9_./:\\-]|[a-z][A-Z]).*$", re.MULTILINE
)
"""Of such runs of characters, one per line: those that are not a plain word or number."""
_JOINERS = "./:\\-"
_IDENTIFIER_CHARACTERS = f"{ascii_letters}{digits}_${_JOINERS}"
_OTHER_BYTES_TO_SPACE = bytes(
    byte if chr(byte) in _IDENTIFIER_CHARACTERS else ord(" ") for byte in range(256)
)
_OTHER_BYTES_TO_SPACE_IN_LINES = bytes(
    ord("\n") if byte == ord("\n") else other for byte, other in enumerate(_OTHER_BYTES_TO_SPACE)
)
_HANDLE_OR_RECALL_TOOL = re.compile(r"(?i)\bm\d+(?:\.\d+|-m\d+)?\b|recall|search_history")
"""A text that asks for hidden content. In a placeholder only our own may appear."""
_RECALL_OFFER = re.compile(r"(?i)\brecall\s+m\d+(?:\.\d+|-m\d+)?|\bm\d+(?:\.\d+|-m\d+)\b")


def count_identifiers(text: str) -> dict[str, int]:
    """Count the identifiers of a text, in order of appearance."""
    counts: dict[str, int] = {}
    for run, times in Counter(_split_identifier_runs(text)).items():
        word = run.strip(_JOINERS)
        counts[word] = counts.get(word, 0) + times
    return {word: counts[word] for word in _LINES_OF_IDENTIFIERS.findall("\n".join(counts))}


def list_identifiers_by_line(
    text: str, keep: Callable[[str], bool] = lambda _: True
) -> list[list[str]]:
    """Return the identifiers of each line of a text. `keep` is asked once for each of them."""
    utf8 = text.encode("utf-8", "surrogatepass")
    lines = utf8.translate(_OTHER_BYTES_TO_SPACE_IN_LINES).decode("ascii").split("\n")
    runs_by_line = [line.split() for line in lines]
    words = {run: run.strip(_JOINERS) for run in set[str]().union(*runs_by_line)}
    identifiers = {*_LINES_OF_IDENTIFIERS.findall("\n".join(words.values()))}
    kept = {word for word in identifiers if keep(word)}
    known = {run: word for run, word in words.items() if word in kept}
    return [[known[run] for run in runs if run in known] for runs in runs_by_line]


def _split_identifier_runs(text: str) -> list[str]:
    """Return all runs of the characters of identifiers.

    As bytes, because replacing the others and splitting is several times faster than an expression.
    """
    utf8 = text.encode("utf-8", "surrogatepass")
    return utf8.translate(_OTHER_BYTES_TO_SPACE).decode("ascii").split()


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
        visible = set(_split_identifier_runs(shown_text))  # a part of a longer run is another word
        top: list[str] = []
        room = 20 * limit
        for word in self._ranked:
            if len(top) == limit:
                break
            if len(word) + 2 > room:
                continue  # one endless word must not hide all the others
            if word in visible or _HANDLE_OR_RECALL_TOOL.search(word):
                continue
            room -= len(word) + 2
            top.append(word)
        return top


def replace_recall_offers(quoted_line: str) -> str:
    """Return a quoted line without anything that looks like our offer to show hidden content."""
    return _RECALL_OFFER.sub("…", quoted_line)


def slice_without_splitting_identifiers(
    text: str, start: int, end: int, max_extra_chars: int
) -> str:
    """Return the text between two offsets, extended to whole words.

    A longer extension than `max_extra_chars` at both ends together is left out: an endless word is
    cut.
    """
    before = text[max(0, start - max_extra_chars - 1) : start]
    after = text[start : start + 1]
    extra_before = len(before) - len(before.rstrip(_IDENTIFIER_CHARACTERS))
    if not after or after not in _IDENTIFIER_CHARACTERS:
        extra_before = 0
    before = text[max(0, end - 1) : end]
    after = text[end : end + max_extra_chars + 1]
    extra_after = len(after) - len(after.lstrip(_IDENTIFIER_CHARACTERS))
    if not before or before not in _IDENTIFIER_CHARACTERS:
        extra_after = 0
    if extra_before + extra_after > max_extra_chars:
        return text[start:end]
    return text[start - extra_before : end + extra_after]


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
