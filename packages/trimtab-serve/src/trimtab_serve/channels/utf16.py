"""Convert between UTF-16 code units, which chat platforms count, and Python's code points."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_JOINING_CHARACTERS = ("\u200d", "\ufe0e", "\ufe0f", "\u20e3")
_MAX_BACKTRACK_CODE_POINTS = 16
"""Maximum number of code points that a cut moves back to keep a visible character whole."""


def count_utf16_units(text: str) -> int:
    """Return the length of a text as a platform counts it."""
    return len(text) + sum(character > "\uffff" for character in text)


def slice_by_utf16_units(text: str, unit_offset: int, unit_length: int) -> str:
    """Return the text at an offset in units. Empty if the offset is outside the text."""
    if unit_offset < 0 or unit_length <= 0:
        return ""
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw[2 * unit_offset : 2 * (unit_offset + unit_length)].decode("utf-16-le", "replace")


def convert_to_utf16_offsets(text: str, code_point_positions: Iterable[int]) -> dict[int, int]:
    """Return the offset in units of each position in code points."""
    offsets: dict[int, int] = {}
    at = units = 0
    for position in sorted(set(code_point_positions)):
        units += count_utf16_units(text[at:position])
        at = position
        offsets[position] = units
    return offsets


def max_prefix_length(text: str, max_units: int) -> int:
    """Return how many code points from the beginning fit into this number of units."""
    if len(text) <= max_units // 2:
        return len(text)
    units = max_units
    for position, character in enumerate(text):
        units -= 2 if character > "\uffff" else 1
        if units < 0:
            return position
    return len(text)


def snap_cut_to_grapheme(text: str, cut: int) -> int:
    """Return the cut, or one a little before it that does not divide a visible character."""
    lowest = max(1, cut - _MAX_BACKTRACK_CODE_POINTS)
    place = cut
    while place > lowest and place < len(text) and _is_inside_grapheme(text, place):
        place -= 1
    return place


def _is_inside_grapheme(text: str, at: int) -> bool:
    before = text[at - 1]
    after = text[at]
    if after in _JOINING_CHARACTERS or before == "\u200d" or unicodedata.combining(after):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff":  # a skin colour
        return True
    return _is_flag_letter(after) and _count_flag_letters_before(text, at) % 2 == 1


def _count_flag_letters_before(text: str, at: int) -> int:
    """Count the flag symbols right before a position. Two of them make one flag."""
    count = 0
    while count < at and _is_flag_letter(text[at - count - 1]):
        count += 1
    return count


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
