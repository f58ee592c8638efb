"""What a terminal would show of a text: no escape codes, and no overwritten text.

A program that colours its output or draws a progress bar writes for a screen. A model reads every
character, and pays for it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass

_ESCAPE_CODE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, cursor
    r"|\x1b[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]?"  # all others, and what was cut off before its end
)
"""An escape code never crosses the end of a line, so the lines stay the same."""


def render_as_terminal(text: str) -> str:
    """Return a text as a screen would show it, line by line. Line ends stay."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPE_CODE.sub("", text)
    if "\r" not in text:
        return text
    lines = text.split("\n")
    last = len(lines) - 1
    return "\n".join(
        _text_after_last_return(line, "" if at == last else "\r") if "\r" in line else line
        for at, line in enumerate(lines)
    )


def _text_after_last_return(line: str, end: str) -> str:
    """Return the text of a line after its last carriage return.

    A return at the end overwrites nothing: with the newline it is the end of the line.
    """
    body = line.rstrip("\r")
    return body[body.rfind("\r") + 1 :] + (end if len(body) < len(line) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedCharacterMap:
    """Maps the shown characters of a line to their offsets in the original."""

    overwritten_chars: int
    """How many characters, without codes, precede the first shown character."""
    chars_before_stretch: array[int]
    """For each stretch without codes, how many such characters precede it."""
    stretch_offsets: array[int]
    """The offset of each of these stretches."""

    def find_source_offset(self, displayed_index: int) -> int:
        """Return the offset of the shown character with this number."""
        number = self.overwritten_chars + displayed_index
        stretch = bisect_right(self.chars_before_stretch, number) - 1
        return self.stretch_offsets[stretch] + number - self.chars_before_stretch[stretch]


def map_displayed_characters(line: str) -> DisplayedCharacterMap:
    """Build the map of a line, which is passed without its newline."""
    first = 0
    chars_before = array("q", [0])
    begins = array("q", [0])
    for code in _ESCAPE_CODE.finditer(line):
        begin, end = code.span()
        chars_before.append(chars_before[-1] + begin - begins[-1])
        begins.append(end)
    if "\r" in line:
        first = _ESCAPE_CODE.sub("", line).rstrip("\r").rfind("\r") + 1
    return DisplayedCharacterMap(
        overwritten_chars=first, chars_before_stretch=chars_before, stretch_offsets=begins
    )
