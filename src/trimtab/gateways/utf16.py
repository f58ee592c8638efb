"""Chat platforms count in UTF-16 code units; Python in code points."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_JOINS = ("\u200d", "\ufe0e", "\ufe0f", "\u20e3")
_BACK = 16
"""Code points that a cut goes back at most, to spare what looks like one letter."""


def units(text: str) -> int:
    """How long a platform takes a text to be."""
    return len(text) + sum(character > "\uffff" for character in text)


def piece(text: str, offset: int, length: int) -> str:
    """What stands at a place that is given in units; empty where it is not in the text."""
    if offset < 0 or length <= 0:
        return ""
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace")


def places(text: str, positions: Iterable[int]) -> dict[int, int]:
    """For positions in code points, the same in units."""
    found: dict[int, int] = {}
    at = counted = 0
    for position in sorted(set(positions)):
        counted += units(text[at:position])
        at = position
        found[position] = counted
    return found


def longest(text: str, limit: int) -> int:
    """How many code points from the beginning stay within so many units."""
    if len(text) <= limit // 2:
        return len(text)
    left = limit
    for position, character in enumerate(text):
        left -= 2 if character > "\uffff" else 1
        if left < 0:
            return position
    return len(text)


def between_letters(text: str, at: int) -> int:
    """The place, or one a little before it where it would go through what looks like one letter."""
    lowest, place = max(1, at - _BACK), at
    while place > lowest and place < len(text) and _joined(text, place):
        place -= 1
    return place


def _joined(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if after in _JOINS or before == "\u200d" or unicodedata.combining(after):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff":  # the colour of a skin
        return True
    return _is_flag(after) and _flags_before(text, at) % 2 == 1


def _flags_before(text: str, at: int) -> int:
    """Letters of flags that stand right before a place: two make one flag."""
    count = 0
    while count < at and _is_flag(text[at - count - 1]):
        count += 1
    return count


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
