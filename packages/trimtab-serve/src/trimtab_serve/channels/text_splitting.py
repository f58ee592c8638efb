"""Find where to cut a text that is too long for one message, so that it stays easy to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab_serve.channels.utf16 import max_prefix_length, snap_cut_to_grapheme

CutSign = tuple[str, int]
"""A separator to cut at, and the minimum position of the cut: 2 is after a half, 8 after an
eighth."""
PARAGRAPH_LINE_WORD_CUTS: tuple[CutSign, ...] = (
    ("\n\n", 2),
    ("\n", 2),
    ("\n", 8),
    (" ", 2),
    (" ", 8),
)
"""Separators, the best first."""

Range = tuple[int, int]
"""First code point of something in a text, and the one after its last."""


def find_cut(
    text: str,
    *,
    max_units: int,
    used_units: int = 0,
    max_chars: int | None = None,
    signs: Sequence[CutSign] = PARAGRAPH_LINE_WORD_CUTS,
    unsplittable: Sequence[Range] = (),
) -> int:
    """Return the position to cut a text: as late as possible, at the best separator that comes late
    enough.

    `max_units` is the limit of one message in UTF-16 units, and `used_units` of them are already
    used. `max_chars` is a further limit of the text in code points. An unsplittable range is only
    cut if there is nothing else.

    The result is 0 if the message already has text and this text has no good place to cut. Then all
    of it goes into the next message. White space at the cut may be dropped.
    """
    top = max_prefix_length(text, max_units - used_units)
    if max_chars is not None:
        top = min(top, max_chars)
    first = 0 if used_units else 1
    for sign, part in signs:
        lowest = max(first, (used_units + top) // part - used_units)
        before = top + 1
        while (at := text.rfind(sign, lowest, before)) >= first:
            cut = at + len(sign.rstrip())
            if not is_inside_range(unsplittable, cut):
                return cut
            before = at + len(sign) - 1
    if used_units:
        return 0
    cut = snap_cut_to_grapheme(text, top)
    # Ranges may be nested. A range at the beginning of the text is cut, otherwise nothing would be
    # left.
    return min((start for start, end in unsplittable if 0 < start < cut < end), default=cut)


def is_inside_range(ranges: Iterable[Range], cut: int) -> bool:
    """Return whether a cut would divide one of the ranges."""
    return any(start < cut < end for start, end in ranges)
