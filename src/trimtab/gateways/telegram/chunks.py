"""Long replies in pieces that Telegram takes, cut where a reader would."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.gateways.telegram.styled import Mark, Styled, moved
from trimtab.gateways.utf16 import between_letters, longest, units

LIMIT = 4_096
"""UTF-16 units of one message."""
ROOM = LIMIT - 64
"""Units that a reply takes of it: a mark may have to stand before it."""
MARKS = 99
"""Entities of one message; Telegram ignores what is behind a hundred, and a mark is one."""


def chunks(whole: Styled, limit: int = ROOM) -> list[Styled]:
    """The same in pieces, each within the limit, all of the text in order.

    What is marked and fits into one message is not cut apart: no link, no code, no bold words.
    """
    found: list[Styled] = []
    text, marks, start = whole.text, whole.marks, 0
    while start < len(text):
        marks = tuple(mark for mark in marks if mark.end > start)
        # What is further away than one piece reaches does not matter to it.
        near = tuple(mark for mark in marks if mark.start <= start + limit)
        left = Styled(text=text[start : start + limit + 1], marks=moved(near, -start))
        if units(left.text) <= limit and len(near) <= MARKS and start + limit >= len(text):
            at = len(left.text)
        else:
            uncut = moved((one for one in near if _fits(text, one, limit)), -start)
            at = _place(left, limit, uncut)
        piece = left.cut(0, at)
        if piece.text:
            found.append(piece)
        # In a block of code the line break goes, and not what the next line begins with.
        inside = text[start + at : start + at + 1] == "\n" and _within(left.marks, at, ("pre",))
        start += at + inside
    return found


def _fits(text: str, mark: Mark, limit: int) -> bool:
    long = mark.end - mark.start
    return long <= limit and units(text[mark.start : mark.end]) <= limit


def _place(left: Styled, limit: int, uncut: Sequence[Mark]) -> int:
    """Where to cut: as late as possible, and as little in the way as possible."""
    text, marks = left.text, left.marks
    top = longest(text, limit)
    if len(marks) > MARKS:
        top = min(top, max(1, marks[MARKS].start))
    half, eighth = top // 2, top // 8
    tries = (("\n\n", half), ("\n", half), ("\n", eighth), (" ", half), (" ", eighth))
    for sign, lowest in tries:
        at = text.rfind(sign, max(1, lowest), top + 1)
        while at > 0 and _within(uncut, at):
            at = text.rfind(sign, max(1, lowest), at)
        if at > 0:
            return at
    return _before(uncut, between_letters(text, top)) or top


def _before(uncut: Sequence[Mark], at: int) -> int:
    """There, or where whatever it stands within begins; one may stand within another."""
    return min((mark.start for mark in uncut if mark.start < at < mark.end), default=at)


def _within(marks: Sequence[Mark], at: int, kinds: Sequence[str] = ()) -> bool:
    return any(mark.start < at < mark.end for mark in marks if not kinds or mark.kind in kinds)
