"""Long replies in pieces that Discord takes, cut where a reader would; code stays code."""

from __future__ import annotations

import re

from trimtab.gateways.utf16 import between_letters, longest, units

LIMIT = 2_000
"""Characters of one message, counted as UTF-16 does: whoever keeps to it is right either way."""
_CLOSE = "\n```"
_BLOCK = re.compile(
    r"```(?:(?P<language>[\w+#.-]{1,32})?\n)?(?P<code>.*?)(?P<close>```|\Z)", re.DOTALL
)
_WHOLE = re.compile(
    r"<(?:@[!&]?\d+|#\d+|a?:\w+:\d+|t:-?\d+(?::\w)?|/[^<>\n]{1,120}:\d+|id:\w+)>|https?://\S+"
)
"""What is one thing to a reader: people, channels, emoji, times, commands, addresses."""
_BREAKS = (("\n\n", 2), ("\n", 2), (". ", 2), ("\n", 8), (" ", 2), (" ", 8))
"""Signs to cut at, the best first, and how full a piece must be by then: to a half, an eighth."""


def chunks(text: str, limit: int = LIMIT) -> list[str]:
    """The text in pieces within the limit, in order; white space at a cut is left out.

    A block of code is not cut if it fits into one piece; a longer one is closed and opened again.
    Nothing for a text that says nothing.
    """
    pieces, at = [""], 0
    for block in _BLOCK.finditer(text):
        _add_prose(pieces, text[at : block.start()], limit)
        _add_block(pieces, block, limit)
        at = block.end()
    _add_prose(pieces, text[at:], limit)
    return [piece for one in pieces if (piece := one.strip())]


def _add_block(pieces: list[str], block: re.Match[str], limit: int) -> None:
    code, head = block["code"], f"```{block['language'] or ''}\n"
    if not code.strip():
        return
    # One that was never closed, as in a reply that was cut off, would not be shown as code.
    whole = block[0] if block["close"] else f"{head}{code.rstrip()}{_CLOSE}"
    if units(whole) <= limit:
        parts = [whole]
    else:
        room = limit - len(head) - len(_CLOSE)
        parts = [f"{head}{part}{_CLOSE}" for part in _code(code.rstrip(), room)]
    for part in parts:
        if units(pieces[-1]) + units(part) <= limit:
            pieces[-1] += part
        else:
            pieces.append(part)


def _code(code: str, room: int) -> list[str]:
    """Code in parts, cut between lines; a line is cut only if it is longer than a part."""
    parts = [""]
    for line in code.split("\n"):
        rest = line
        if parts[-1]:
            if units(parts[-1]) + 1 + units(rest) <= room:
                parts[-1] += f"\n{rest}"
                continue
            parts.append("")
        while units(rest) > room:
            at = between_letters(rest, longest(rest, room))
            parts[-1:] = [rest[:at], ""]
            rest = rest[at:]
        parts[-1] = rest
    return [part for part in parts if part.strip()]


def _add_prose(pieces: list[str], prose: str, limit: int) -> None:
    rest = prose
    while rest.strip():
        used = units(pieces[-1])
        if used + units(rest) <= limit:
            pieces[-1] += rest
            return
        at = _place(rest, used, limit)
        pieces[-1] += rest[:at]
        pieces.append("")
        rest = rest[at:].lstrip()


def _place(rest: str, used: int, limit: int) -> int:
    """Where to cut what does not fit behind so much; 0 where all of it goes into the next piece."""
    top = longest(rest, limit - used)
    for sign, part in _BREAKS:
        at = rest.rfind(sign, max(0, limit // part - used), top)
        if at >= 0 and used + at > 0:
            return _beside(rest, at + len(sign.rstrip()), used)
    return _beside(rest, 0 if used else between_letters(rest, top), used)


def _beside(rest: str, at: int, used: int) -> int:
    """The place, or the beginning of what is one thing and would be torn there."""
    for found in _WHOLE.finditer(rest[: at + LIMIT]):
        if found.start() < at < found.end():
            return found.start() if used or found.start() else at
    return at
