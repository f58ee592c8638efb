"""Long replies in pieces that Discord takes, cut where a reader would; code stays code."""

from __future__ import annotations

import re

from trimtab.server.channels.utf16 import count_utf16_units, max_prefix_length, snap_cut_to_grapheme

MAX_MESSAGE_UTF16_UNITS = 2_000
"""Characters of one message, counted as UTF-16 does: whoever keeps to it is right either way."""
_CODE_FENCE_END = "\n```"
_CODE_BLOCK = re.compile(
    r"```(?:(?P<language>[\w+#.-]{1,32})?\n)?(?P<code>.*?)(?P<close>```|\Z)", re.DOTALL
)
_UNSPLITTABLE_TOKEN = re.compile(
    r"<(?:@[!&]?\d+|#\d+|a?:\w+:\d+|t:-?\d+(?::\w)?|/[^<>\n]{1,120}:\d+|id:\w+)>|https?://\S+"
)
"""What is one thing to a reader: people, channels, emoji, times, commands, addresses."""
_PREFERRED_CUTS = (("\n\n", 2), ("\n", 2), (". ", 2), ("\n", 8), (" ", 2), (" ", 8))
"""Signs to cut at, the best first, and how full a piece must be by then: to a half, an eighth."""


def split_discord_message(text: str, max_units: int = MAX_MESSAGE_UTF16_UNITS) -> list[str]:
    """The text in pieces within the limit, in order; white space at a cut is left out.

    A block of code is not cut if it fits into one piece; a longer one is closed and opened again.
    Nothing for a text that says nothing.
    """
    pieces, at = [""], 0
    for block in _CODE_BLOCK.finditer(text):
        _append_prose(pieces, text[at : block.start()], max_units)
        _append_code_block(pieces, block, max_units)
        at = block.end()
    _append_prose(pieces, text[at:], max_units)
    return [piece for one in pieces if (piece := one.strip())]


def _append_code_block(pieces: list[str], block: re.Match[str], max_units: int) -> None:
    code, head = block["code"], f"```{block['language'] or ''}\n"
    if not code.strip():
        return
    # One that was never closed, as in a reply that was cut off, would not be shown as code.
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
    """Code in parts, cut between lines; a line is cut only if it is longer than a part."""
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
        used = count_utf16_units(pieces[-1])
        if used + count_utf16_units(rest) <= max_units:
            pieces[-1] += rest
            return
        at = _find_cut(rest, used, max_units)
        pieces[-1] += rest[:at]
        pieces.append("")
        rest = rest[at:].lstrip()


def _find_cut(rest: str, used: int, max_units: int) -> int:
    """Where to cut what does not fit behind so much; 0 where all of it goes into the next piece."""
    top = max_prefix_length(rest, max_units - used)
    for sign, part in _PREFERRED_CUTS:
        at = rest.rfind(sign, max(0, max_units // part - used), top)
        if at >= 0 and used + at > 0:
            return _avoid_splitting_token(rest, at + len(sign.rstrip()), used)
    return _avoid_splitting_token(rest, 0 if used else snap_cut_to_grapheme(rest, top), used)


def _avoid_splitting_token(rest: str, cut: int, used: int) -> int:
    """The place, or the beginning of what is one thing and would be torn there."""
    for found in _UNSPLITTABLE_TOKEN.finditer(rest[: cut + MAX_MESSAGE_UTF16_UNITS]):
        if found.start() < cut < found.end():
            return found.start() if used or found.start() else cut
    return cut
