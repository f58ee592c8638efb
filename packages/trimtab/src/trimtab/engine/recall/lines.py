"""The numbered lines of a recalled text, and those of them that an answer has room for.

A long line counts as several lines, so that every character of a text can be asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trimtab.engine.recall.linear_regex import compile_line_matcher

MAX_ANSWER_CHARS = 8_000
"""Maximum number of characters of one answer of a recall tool."""
MAX_LINE_CHARS = 1_000
"""Maximum number of characters of a numbered line, without its line end. A longer line of the text
counts as several."""
CHARS_BEFORE_MATCH_END = 400
CHARS_AFTER_MATCH_END = 300
"""How much is shown around the end of a match in a line that counts as several."""
_LINE_RANGE = re.compile(r"(\d+)?\s*(?:(-|–|:|to)\s*(\d+)?)?", re.IGNORECASE)
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the text, and the numbers that it counts as."""

    text: str
    """The line with its line end."""
    begin: int
    """Characters of the text before it."""
    first: int
    """Its first number, from 1."""
    count: int
    """How many numbers it counts as."""

    @property
    def body(self) -> str:
        """The line without its line end."""
        return self.text.rstrip(_LINE_ENDS)

    def number_at(self, offset: int) -> int:
        """Return the number of the piece that contains the character before an offset."""
        return self.first + min(max(offset - 1, 0) // MAX_LINE_CHARS, self.count - 1)

    def pieces(self) -> Iterator[_Piece]:
        for index in range(self.count):
            begin = index * MAX_LINE_CHARS
            end = begin + MAX_LINE_CHARS if index + 1 < self.count else len(self.text)
            yield _Piece(number=self.first + index, text=self.text[begin:end])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Something that an answer shows whole or not at all."""

    number: int
    """Number of the line to ask for if it is left out."""
    text: str
    """What is shown of it."""


def extract_lines(
    text: str, line_range: str = "", grep_pattern: str = "", *, max_chars: int = MAX_ANSWER_CHARS
) -> str:
    """Return the requested lines within the limit, and say what is left out and how to get it.

    Lines are returned exactly as they are in the text, without the last line end. Of a long line a
    pattern finds the text around its matches.
    """
    if not line_range and not grep_pattern and len(text) <= max_chars:
        return text or "(the text is empty)"
    lines = _number_lines(text)
    total = lines[-1].first + lines[-1].count - 1 if lines else 0
    span = range(1, total + 1)
    if line_range:
        span = _parse_line_range(line_range, total)
        if not span:
            return f"(no such lines; the text has {total}; write 10-40)"
    if grep_pattern:
        pieces = _find_matches(lines, grep_pattern, span)
    else:
        pieces = (piece for line in lines for piece in line.pieces() if piece.number in span)
    return _join_pieces(pieces, total, span, max_chars, of_matches=bool(grep_pattern))


def _number_lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    begin = 0
    number = 1
    for line in text.splitlines(keepends=True):
        count = max(1, -(-len(line.rstrip(_LINE_ENDS)) // MAX_LINE_CHARS))
        lines.append(_Line(text=line, begin=begin, first=number, count=count))
        begin += len(line)
        number += count
    return lines


def _find_matches(lines: Sequence[_Line], pattern: str, span: range) -> Iterator[_Piece]:
    """Yield the short lines with a match, and the text around the matches in long lines."""
    find_match_ends = compile_line_matcher(pattern)
    for line in lines:
        if line.first + line.count <= span.start or line.first >= span.stop:
            continue
        ends = find_match_ends(line.body)
        if line.count == 1 and ends:
            yield _Piece(number=line.first, text=line.text)
        elif ends:
            yield from _show_around(line, (end for end in ends if line.number_at(end) in span))


def _show_around(line: _Line, match_ends: Iterable[int]) -> Iterator[_Piece]:
    """Yield the text around matches. Texts that overlap are one, up to the size of a line."""
    size = len(line.body)
    begin = end = number = 0
    for match_end in match_ends:
        before = match_end - CHARS_BEFORE_MATCH_END
        after = match_end + CHARS_AFTER_MATCH_END
        if number and before <= end and after - begin <= MAX_LINE_CHARS:
            end = min(after, size)
            continue
        if number and match_end <= end:
            continue  # it is shown, with less text after it
        if number:
            yield _excerpt(line, begin, end, number)
        begin = max(before, end, 0)
        end = min(after, size)
        number = line.number_at(match_end)
    if number:
        yield _excerpt(line, begin, end, number)


def _excerpt(line: _Line, begin: int, end: int, number: int) -> _Piece:
    first = line.number_at(begin + 1)
    last = line.number_at(end)
    where = f"line {first}" if first == last else f"lines {first}-{last}"
    place = f"[{where}, characters {line.begin + begin}-{line.begin + end}]"
    return _Piece(number=number, text=f"{place}\n{line.body[begin:end]}\n")


def _join_pieces(
    pieces: Iterable[_Piece], total: int, span: range, max_chars: int, *, of_matches: bool
) -> str:
    """Return the pieces that fit. If some do not, say which lines are shown and which are next."""
    texts: list[str] = []
    size = 0
    first = span.start
    for piece in pieces:
        size += len(piece.text)
        if texts and size - _count_line_end(piece.text) > max_chars:
            last = piece.number - 1
            what = f"{'matches in ' if of_matches else ''}lines {first}-{max(first, last)}"
            next_lines = f"{piece.number}-{min(span.stop - 1, total)}"
            notice = f"[{what} of {total} are shown; ask for lines {next_lines}]"
            out = "".join(texts)
            return f"{out}{'' if _count_line_end(out) else chr(10)}{notice}"
        texts.append(piece.text)
    out = "".join(texts)
    miss = "no line matches" if of_matches else f"no such lines; the text has {total}"
    return out[: len(out) - _count_line_end(out)] or f"({miss})"


def _count_line_end(text: str) -> int:
    """Return the number of characters of the line end at the end of a text."""
    return 2 if text.endswith("\r\n") else int(text.endswith(tuple(_LINE_ENDS)))


def _parse_line_range(lines: str, total: int) -> range:
    """Return the line numbers of `10-40`, `10` or `10-`; empty for anything else."""
    match = _LINE_RANGE.fullmatch(lines.strip())
    if match is None or not (match[1] or match[3]):
        return range(0)
    low = int(match[1] or 1)
    high = int(match[3]) if match[3] else (max(low, total) if match[2] else low)
    return range(low, high + 1)
