"""Words that come in pieces, broken into lines at spaces; code is left as it is."""

from __future__ import annotations

import re

from rich.cells import cell_len

LONGEST = 30
"""Characters of a word that are held back until its end is seen; a longer one may be broken."""
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")
_FENCES = ("```", "~~~")


class Wrapping:
    """Takes a text piece by piece and gives what may be written of it."""

    def __init__(self) -> None:
        self._column = 0
        self._word = self._space = self._start = ""
        self._code = False
        self._within = False  # part of this word is written already

    def feed(self, text: str, width: int) -> str:
        """What may be written now; the last word is kept until it is whole."""
        made = ""
        for piece in _PIECES.findall(text):
            if piece == "\n":
                made += self.flush(width) + piece
                self._end_line()
            elif piece.isspace():
                made += self.flush(width)
                self._space, self._within = self._space + piece, False
                self._start += piece if len(self._start) < LONGEST else ""
            else:
                self._start += piece if len(self._start) < LONGEST else ""
                self._word += piece
                if len(self._word) > LONGEST or not self._word.isascii():
                    # Scripts without spaces would be held back for a whole paragraph.
                    made += self.flush(width)
        return made

    def flush(self, width: int) -> str:
        """What is kept; the rest of a word follows it without a space."""
        if not self._word:
            return ""
        word, space = self._word, self._space
        self._word = self._space = ""
        size = cell_len((space + word).expandtabs(8))
        breaks = not (self._within or self._code) and self._column + size > width
        self._within = True
        if breaks and self._column:
            self._column = cell_len(word)
            return f"\n{word}"
        self._column += size
        if self._column > width:
            self._column %= max(1, width)
        return space + word

    def _end_line(self) -> None:
        if self._start.lstrip().startswith(_FENCES):
            self._code = not self._code
        self._column, self._within = 0, False
        self._space = self._start = ""
