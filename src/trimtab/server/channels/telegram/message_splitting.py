"""Long replies in pieces that Telegram takes, cut where a reader would."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.server.channels.telegram.styled_text import StyledText, StyleSpan, shift_spans
from trimtab.server.channels.text_splitting import find_cut, is_inside_range
from trimtab.server.channels.utf16 import count_utf16_units

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
            at = find_cut(
                left.text,
                max_units=max_units,
                max_chars=_max_chars_by_spans(left.spans),
                unsplittable=[
                    (one.start - start, one.end - start)
                    for one in near
                    if _span_fits(text, one, max_units)
                ],
            )
        piece = left.slice_trimmed(0, at)
        if piece.text:
            found.append(piece)
        # In a block of code the line break goes, and not what the next line begins with.
        inside = text[start + at : start + at + 1] == "\n" and _is_in_code_block(left.spans, at)
        start += at + inside
    return found


def _span_fits(text: str, span: StyleSpan, max_units: int) -> bool:
    long = span.end - span.start
    return long <= max_units and count_utf16_units(text[span.start : span.end]) <= max_units


def _max_chars_by_spans(spans: Sequence[StyleSpan]) -> int | None:
    """How far one message reaches without too many entities; None if there are not too many."""
    if len(spans) <= MAX_SPANS_PER_MESSAGE:
        return None
    return max(1, spans[MAX_SPANS_PER_MESSAGE].start)


def _is_in_code_block(spans: Sequence[StyleSpan], cut: int) -> bool:
    return is_inside_range(((span.start, span.end) for span in spans if span.kind == "pre"), cut)
