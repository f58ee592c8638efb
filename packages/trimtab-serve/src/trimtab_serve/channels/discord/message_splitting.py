"""Split long replies for Discord at good places. Code stays code."""

from __future__ import annotations

import re

from trimtab_serve.channels.text_splitting import CutSign, find_cut
from trimtab_serve.channels.utf16 import count_utf16_units, max_prefix_length, snap_cut_to_grapheme

MAX_MESSAGE_UTF16_UNITS = 2_000
"""Maximum length of a message in UTF-16 units. However Discord counts, this is within its limit."""
_CODE_FENCE_END = "\n```"
_CODE_BLOCK = re.compile(
    r"```(?:(?P<language>[\w+#.-]{1,32})?\n)?(?P<code>.*?)(?P<close>```|\Z)", re.DOTALL
)
_UNSPLITTABLE_TOKEN = re.compile(
    r"<(?:@[!&]?\d+|#\d+|a?:\w+:\d+|t:-?\d+(?::\w)?|/[^<>\n]{1,120}:\d+|id:\w+)>|https?://\S+"
)
"""Patterns that must not be cut: users, channels, emoji, times, commands, addresses."""
_CUT_SIGNS: tuple[CutSign, ...] = (
    ("\n\n", 2),
    ("\n", 2),
    (". ", 2),
    ("\n", 8),
    (" ", 2),
    (" ", 8),
)
"""Separators, the best first."""


def split_discord_message(text: str, max_units: int = MAX_MESSAGE_UTF16_UNITS) -> list[str]:
    """Return the text in pieces within the limit, in order, without white space at the cuts.

    A block of code that fits into one piece is not cut. A longer one is closed and opened again. An
    empty text gives no pieces.
    """
    pieces = [""]
    at = 0
    for block in _CODE_BLOCK.finditer(text):
        _append_prose(pieces, text[at : block.start()], max_units)
        _append_code_block(pieces, block, max_units)
        at = block.end()
    _append_prose(pieces, text[at:], max_units)
    return [piece for one in pieces if (piece := one.strip())]


def _append_code_block(pieces: list[str], block: re.Match[str], max_units: int) -> None:
    code = block["code"]
    head = f"```{block['language'] or ''}\n"
    if not code.strip():
        return
    # A block that was never closed, as in a truncated reply, would not be shown as code.
    whole = block[0] if block["close"] else f"{head}{code.rstrip()}{_CODE_FENCE_END}"
    if count_utf16_units(whole) <= max_units:
        parts = [whole]
    else:
        room = max_units - len(head) - len(_CODE_FENCE_END)
        parts = [f"{head}{part}{_CODE_FENCE_END}" for part in _split_code(code.rstrip(), room)]
    for part in parts:
        if count_utf16_units(pieces[-1]) + count_utf16_units(part) <= max_units:
            pieces[-1] += part
        else:
            pieces.append(part)


def _split_code(code: str, max_units: int) -> list[str]:
    """Split code between lines. A line is cut only if it is longer than a part."""
    parts = [""]
    for line in code.split("\n"):
        rest = line
        if parts[-1]:
            if count_utf16_units(parts[-1]) + 1 + count_utf16_units(rest) <= max_units:
                parts[-1] += f"\n{rest}"
                continue
            parts.append("")
        while count_utf16_units(rest) > max_units:
            at = snap_cut_to_grapheme(rest, max_prefix_length(rest, max_units))
            parts[-1:] = [rest[:at], ""]
            rest = rest[at:]
        parts[-1] = rest
    return [part for part in parts if part.strip()]


def _append_prose(pieces: list[str], prose: str, max_units: int) -> None:
    rest = prose
    while rest.strip():
        used_units = count_utf16_units(pieces[-1])
        if used_units + count_utf16_units(rest) <= max_units:
            pieces[-1] += rest
            return
        at = find_cut(
            rest,
            max_units=max_units,
            used_units=used_units,
            signs=_CUT_SIGNS,
            # Ignore what is further away than two messages.
            unsplittable=[
                one.span() for one in _UNSPLITTABLE_TOKEN.finditer(rest, 0, 2 * max_units)
            ],
        )
        pieces[-1] += rest[:at]
        pieces.append("")
        rest = rest[at:].lstrip()
