"""Count the tokens of a text from the classes of its bytes.

This is apart from `counter.py`, so that a program that counts one text starts fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from trimtab.engine.text.utf8 import replace_lone_surrogates
from trimtab.engine.tokens.odd_text import (
    SLICE_BYTES,
    UNKNOWN_FAMILY,
    build_tokenizer_profile,
    count_slice_tokens,
)
from trimtab.engine.tokens.weights import WEIGHTS_BY_FAMILY


def make_piecewise_count(tokenizer_family: str | None) -> Callable[[str], int]:
    """Return a function that estimates the tokens of a text, for a tokenizer family.

    For None and for an unknown family it uses the maximum of all families.
    """
    is_known = tokenizer_family is not None and tokenizer_family in WEIGHTS_BY_FAMILY
    profile = build_tokenizer_profile(tokenizer_family if is_known else UNKNOWN_FAMILY)

    def count(text: str) -> int:
        raw = encode_utf8_as_sent(text)
        codes = encode_byte_class_pairs(raw)
        if len(raw) <= SLICE_BYTES:
            tokens = count_slice_tokens(raw, codes, profile)
        else:
            tokens = 0.0
            # What is left at the end is too short to be judged alone.
            starts = range(0, len(raw) - SLICE_BYTES // 4, SLICE_BYTES)
            for at, end in zip(starts, (*starts[1:], len(raw)), strict=True):
                tokens += count_slice_tokens(raw[at:end], codes[at:end], profile)
        # Tokens are bytes or longer, but for a few per cent in Claude's on odd text.
        return min(math.ceil(tokens), len(raw))

    return count


def _make_byte_classes() -> bytes:
    table = bytearray(b"\x04" * 128 + b"\x08" * 64 + b"\x09" * 64)
    for number, members in (
        (1, b"acdefghilmnoprstu"),
        (2, bytes(range(0x41, 0x5B))),
        (3, b"0123456789"),
        (5, b"\n\r"),
        (6, b"\t"),
        (7, b" "),
        (10, bytes(range(0xD0, 0xD4))),
        (11, b"\xe0\xe1\xe2\xee\xef"),
        (12, bytes(range(0xE3, 0xEA))),
        (13, bytes(range(0xEA, 0xEE))),
        (14, bytes(range(0xF0, 0x100))),
        (15, b"bjkqvwxyz"),
    ):
        for member in members:
            table[member] = number
    return bytes(table)


BYTE_CLASSES = _make_byte_classes()
"""The class of each byte: 1 common lower-case letter, 2 upper case, 3 digit, 4 other ASCII, 5 line
end, 6 tab, 7 space, 8 continuation. By first byte: 9 two-byte Latin, Greek, Hebrew and Arabic, 10
Cyrillic, 11 other three-byte, 12 kana and Han, 13 Hangul, 14 four-byte. Class 15 is a rare
lower-case letter, which is more common in random strings than in words. 0 is the start of the
text."""


def encode_utf8_as_sent(text: str) -> bytes:
    """Encode a text in UTF-8 as it is sent. Half of a surrogate pair is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_lone_surrogates(text).encode()


def encode_byte_class_pairs(utf8_bytes: bytes) -> bytes:
    """Return, for each byte, the class of the byte before it times 16 plus its own class.

    A token rarely ends within a run of one class and often ends between two. So neighbours tell
    most of what can be known without a vocabulary. The shift computes all pairs in one step.
    """
    classes = int.from_bytes(utf8_bytes.translate(BYTE_CLASSES), "big")
    return (classes | classes >> 4).to_bytes(len(utf8_bytes), "big")
