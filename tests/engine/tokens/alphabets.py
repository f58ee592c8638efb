"""Texts of one alphabet, whose real number of tokens is known.

The numbers are those of o200k. They are written down, so that no vocabulary is needed;
`test_alphabets.py` counts them anew if one is installed. The syllables are random and cost more
than a book in the same script would: somebody sends this who wants a request to be refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BYTES = 6_000
"""Of the text whose tokens are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    name: str
    """What it is called."""
    characters: str
    """All of it."""
    tokens: int
    """Of a text of `BYTES`, by o200k."""
    marks: str = ""
    """Combining characters, four of which stand on each character."""

    def text(self, size: int) -> str:
        """So many bytes of it, or a few less."""
        draw = random.Random(f"alphabet/{self.name}").random  # noqa: S311 - no secret
        width = len(self.characters[0].encode()) + 4 * len(self.marks[:1].encode())
        choices = (self.characters, *[self.marks] * 4) if self.marks else (self.characters,)
        return "".join(
            characters[int(draw() * len(characters))]
            for _ in range(size // width)
            for characters in choices
        )

    @property
    def rate(self) -> float:
        """Tokens of one character."""
        return self.tokens / len(self.text(BYTES))


def _range(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


LATIN = _range(0x61, 0x7A)
ALPHABETS = (
    Alphabet(name="Cherokee", characters=_range(0x13A0, 0x13EF), tokens=6_000),
    Alphabet(name="Braille", characters=_range(0x2800, 0x28FF), tokens=5_942),
    Alphabet(name="private use", characters=_range(0xE000, 0xE3FF), tokens=5_835),
    Alphabet(name="Ethiopic", characters=_range(0x1200, 0x1247), tokens=4_000),
    Alphabet(name="Lao", characters=_range(0x0E94, 0x0E97) + _range(0x0EA1, 0x0EA3), tokens=4_000),
    Alphabet(name="Tibetan", characters=_range(0x0F49, 0x0F6A), tokens=3_943),
    Alphabet(name="Khmer", characters=_range(0x1780, 0x17B3), tokens=2_942),
    Alphabet(name="Devanagari", characters=_range(0x0905, 0x0939), tokens=2_162),
    Alphabet(name="Georgian", characters=_range(0x10D0, 0x10F0), tokens=1_707),
    Alphabet(name="Hebrew", characters=_range(0x05D0, 0x05EA), tokens=2_136),
    Alphabet(name="Arabic", characters=_range(0x0621, 0x063A), tokens=2_490),
    Alphabet(name="Greek", characters=_range(0x03B1, 0x03C9), tokens=2_418),
    Alphabet(name="Han", characters=_range(0x4E00, 0x9F9F), tokens=3_848),
    Alphabet(name="Hangul", characters=_range(0xAC00, 0xD7A3), tokens=4_495),
    Alphabet(name="box drawing", characters=_range(0x2500, 0x257F), tokens=3_843),
    Alphabet(name="emoji", characters=_range(0x1F300, 0x1F5FE), tokens=3_358),
    Alphabet(name="Zalgo", characters=LATIN, marks=_range(0x0300, 0x036F), tokens=5_698),
    Alphabet(name="DNA", characters="ACGT", tokens=3_109),
    Alphabet(name="capitals", characters=LATIN.upper(), tokens=3_428),
    Alphabet(name="letters", characters=LATIN, tokens=3_120),
    Alphabet(name="digits", characters="0123456789", tokens=2_000),
    Alphabet(name="hexadecimal", characters="0123456789abcdef", tokens=3_415),
    Alphabet(name="punctuation", characters="!#$%&*+-/<=>?@^|~", tokens=4_347),
)
