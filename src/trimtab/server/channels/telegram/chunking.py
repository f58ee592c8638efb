"""Long replies in pieces that Telegram takes, cut where a reader would."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.server.channels.telegram.rich_text import StyledText, StyleSpan, shift_spans
from trimtab.server.channels.utf16 import count_utf16_units, max_prefix_length, snap_cut_to_grapheme

MAX_MESSAGE_UTF16_UNITS = 4_096
"""UTF-16 units of one message."""
MAX_REPLY_UTF16_UNITS = MAX_MESSAGE_UTF16_UNITS - 64
"""Units that a reply takes of it: a mark may have to stand before it."""
MAX_SPANS_PER_MESSAGE = 99
"""Entities of one message; Telegram ignores what is behind a hundred, and a mark is one."""


def split_telegram_message(
    styled_text: StyledText, max_units: int = MAX_REPLY_UTF16_UNITS
) -> list[StyledText]:
    """The same in pieces, each within the limit, all of the text in order.

    What is marked and fits into one message is not cut apart: no link, no code, no bold words.
    """
    found: list[StyledText] = []
    text, marks, start = styled_text.text, styled_text.spans, 0
    while start < len(text):
        marks = tuple(mark for mark in marks if mark.end > start)
        # What is further away than one piece reaches does not matter to it.
        near = tuple(mark for mark in marks if mark.start <= start + max_units)
        left = StyledText(text=text[start : start + max_units + 1], spans=shift_spans(near, -start))
        if (
            count_utf16_units(left.text) <= max_units
            and len(near) <= MAX_SPANS_PER_MESSAGE
            and start + max_units >= len(text)
        ):
            at = len(left.text)
        else:
            uncut = shift_spans((one for one in near if _span_fits(text, one, max_units)), -start)
            at = _find_cut(left, max_units, uncut)
        piece = left.slice_trimmed(0, at)
        if piece.text:
            found.append(piece)
        # In a block of code the line break goes, and not what the next line begins with.
        inside = text[start + at : start + at + 1] == "\n" and _is_inside_span(
            left.spans, at, ("pre",)
        )
        start += at + inside
    return found


def _span_fits(text: str, span: StyleSpan, max_units: int) -> bool:
    long = span.end - span.start
    return long <= max_units and count_utf16_units(text[span.start : span.end]) <= max_units


def _find_cut(remaining: StyledText, max_units: int, unsplittable: Sequence[StyleSpan]) -> int:
    """Where to cut: as late as possible, and as little in the way as possible."""
    text, marks = remaining.text, remaining.spans
    top = max_prefix_length(text, max_units)
    if len(marks) > MAX_SPANS_PER_MESSAGE:
        top = min(top, max(1, marks[MAX_SPANS_PER_MESSAGE].start))
    half, eighth = top // 2, top // 8
    tries = (("\n\n", half), ("\n", half), ("\n", eighth), (" ", half), (" ", eighth))
    for sign, lowest in tries:
        at = text.rfind(sign, max(1, lowest), top + 1)
        while at > 0 and _is_inside_span(unsplittable, at):
            at = text.rfind(sign, max(1, lowest), at)
        if at > 0:
            return at
    return _start_of_enclosing_span(unsplittable, snap_cut_to_grapheme(text, top)) or top


def _start_of_enclosing_span(unsplittable: Sequence[StyleSpan], cut: int) -> int:
    """There, or where whatever it stands within begins; one may stand within another."""
    return min((mark.start for mark in unsplittable if mark.start < cut < mark.end), default=cut)


def _is_inside_span(spans: Sequence[StyleSpan], cut: int, kinds: Sequence[str] = ()) -> bool:
    return any(mark.start < cut < mark.end for mark in spans if not kinds or mark.kind in kinds)
