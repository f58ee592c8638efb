"""The exact body of a block, with references in place of the texts that the page has already.

A page must show what the model saw, byte for byte, and each text must be in it once. So a string of
the body becomes a list of pieces: a number of a text, a range of such a text, or new characters.
`tests/inspect` compares what the page builds with what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from trimtab.inspect.text_pool import TextPool, measure_browser_length

MIN_REFERENCE_CHARS = 40
"""Shorter strings are written out. A reference would not be smaller."""
STRING_TAG, LIST_TAG, NUMBER_TAG = "s", "l", "n"
"""The first item of a list in an encoded body: a string of pieces, a list, or a number as text that
a browser would round."""
MAX_EXACT_INTEGER = 2**53
"""Larger integers lose digits in a browser."""


class TextRange(NamedTuple):
    """A part of a text that a block may repeat."""

    number: int
    """The text's number in the pool."""
    start: int
    """Index of its first character."""
    end: int
    """Index after its last character."""


class BodyEncoder:
    """Encodes the bodies of blocks over one pool of texts."""

    def __init__(self, pool: TextPool, *, redacted: bool) -> None:
        self._pool = pool
        self._redacted = redacted

    def encode(self, body: Any, ranges: Sequence[TextRange]) -> Any:
        """Return the body with references to these ranges. A redacted body has no content."""
        if isinstance(body, str):
            return self._encode_text(body, ranges)
        if isinstance(body, Mapping):
            items = cast("Mapping[str, Any]", body).items()
            if self._redacted:
                return {key: self._encode_redacted(key, value) for key, value in items}
            return {key: self.encode(value, ranges) for key, value in items}
        if isinstance(body, list | tuple):
            return [LIST_TAG, *(self.encode(one, ranges) for one in cast("list[Any]", body))]
        return _encode_number(body)

    def _encode_redacted(self, key: str, value: Any) -> Any:
        """Keep what names the kind of a block and its tool. Everything else may be content."""
        if isinstance(value, str) and key in ("type", "role", "name"):
            return value
        if isinstance(value, list) and key in ("content", "tool_calls"):
            return self.encode(value, ())
        if isinstance(value, Mapping) and key == "function":
            return self.encode(value, ())
        return redact_text(str(cast("object", value)))

    def _encode_text(self, text: str, ranges: Sequence[TextRange]) -> Any:
        if self._redacted:
            return redact_text(text)
        if len(text) < MIN_REFERENCE_CHARS:
            return text
        pieces: list[Any] = [STRING_TAG]
        position = 0
        for one in ranges:
            source = self._pool[one.number]
            part = source[one.start : one.end]
            place = text.find(part, position) if len(part) >= MIN_REFERENCE_CHARS else -1
            if place < 0:
                continue
            if place > position:
                pieces.append(text[position:place])
            if len(part) == len(source):
                pieces.append(one.number)
            else:
                start = measure_browser_length(source[: one.start])
                pieces.append([one.number, start, start + measure_browser_length(part)])
            position = place + len(part)
        if not position:
            return text
        if position < len(text):
            pieces.append(text[position:])
        return pieces


def redact_text(text: str) -> str:
    """Return what a redacted page shows of a text: its length."""
    return f"[{len(text):,} characters]" if text else ""


def decode_body(encoded: Any, pool: TextPool) -> Any:
    """Return the body that was encoded. The page's script does the same."""
    if isinstance(encoded, dict):
        items = cast("dict[str, Any]", encoded).items()
        return {key: decode_body(value, pool) for key, value in items}
    if not isinstance(encoded, list):
        return encoded
    tag, *rest = cast("list[Any]", encoded)
    if tag == LIST_TAG:
        return [decode_body(one, pool) for one in rest]
    if tag == NUMBER_TAG:
        return float(rest[0]) if any(sign in rest[0] for sign in ".en") else int(rest[0])
    return "".join(_decode_piece(piece, pool) for piece in rest)


def _decode_piece(piece: Any, pool: TextPool) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, int):
        return pool[piece]
    number, start, end = piece
    units = pool[number].encode("utf-16-le", "surrogatepass")
    return units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")


def _encode_number(value: Any) -> Any:
    is_float = isinstance(value, float)
    is_large = isinstance(value, int) and abs(value) >= MAX_EXACT_INTEGER
    return [NUMBER_TAG, repr(value)] if is_float or is_large else value
