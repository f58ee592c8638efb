"""Split long replies for Telegram at good places."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_serve.channels.telegram.styled_text import StyledText, StyleSpan, shift_spans
from trimtab_serve.channels.text_splitting import find_cut, is_inside_range
from trimtab_serve.channels.utf16 import count_utf16_units

MAX_MESSAGE_UTF16_UNITS = 4_096
"""Maximum length of a message in UTF-16 units."""
MAX_REPLY_UTF16_UNITS = MAX_MESSAGE_UTF16_UNITS - 64
"""Maximum length of a reply's text. The rest is for a notice before it."""
MAX_SPANS_PER_MESSAGE = 99
"""Maximum number of entities of one message. Telegram ignores those after the hundredth, and the
notice is one."""


def split_telegram_message(
    styled_text: StyledText, max_units: int = MAX_REPLY_UTF16_UNITS
) -> list[StyledText]:
    """Return the text in pieces, each within the limit, in order.

    A styled range that fits into one message is not cut: no link, no code, no bold text.
    """
    pieces: list[StyledText] = []
    text = styled_text.text
    marks = styled_text.spans
    start = 0
    while start < len(text):
        marks = tuple(mark for mark in marks if mark.end > start)
        # A range that is further away than one piece does not matter to it.
        near = tuple(mark for mark in marks if mark.start <= start + max_units)
        rest = StyledText(text=text[start : start + max_units + 1], spans=shift_spans(near, -start))
        if (
            count_utf16_units(rest.text) <= max_units
            and len(near) <= MAX_SPANS_PER_MESSAGE
            and start + max_units >= len(text)
        ):
            at = len(rest.text)
        else:
            at = find_cut(
                rest.text,
                max_units=max_units,
                max_chars=_max_chars_by_spans(rest.spans),
                unsplittable=[
                    (one.start - start, one.end - start)
                    for one in near
                    if _span_fits(text, one, max_units)
                ],
            )
        piece = rest.slice_trimmed(0, at)
        if piece.text:
            pieces.append(piece)
        # In a block of code, drop only the line break, not the indentation of the next line.
        inside = text[start + at : start + at + 1] == "\n" and _is_in_code_block(rest.spans, at)
        start += at + inside
    return pieces


def _span_fits(text: str, span: StyleSpan, max_units: int) -> bool:
    long = span.end - span.start
    return long <= max_units and count_utf16_units(text[span.start : span.end]) <= max_units


def _max_chars_by_spans(spans: Sequence[StyleSpan]) -> int | None:
    """Return how much fits into one message without too many entities. None if all of it fits."""
    if len(spans) <= MAX_SPANS_PER_MESSAGE:
        return None
    return max(1, spans[MAX_SPANS_PER_MESSAGE].start)


def _is_in_code_block(spans: Sequence[StyleSpan], cut: int) -> bool:
    return is_inside_range(((span.start, span.end) for span in spans if span.kind == "pre"), cut)
