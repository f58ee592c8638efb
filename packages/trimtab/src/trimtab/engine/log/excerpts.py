"""Shorten a long output without misleading the model about what it does not see.

Only positions are stored. The text stays in the log, and the excerpt is rendered from the text and
the pieces each time. The excerpt keeps the head, the tail and those lines between them that name an
error. Every gap says how much it leaves out. A change of what `render_kept_pieces` returns also
changes past requests, so it needs a new renderer version.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress
from math import ceil
from operator import eq

from trimtab.engine.text.error_lines import find_error_offset, find_possible_error_line_starts
from trimtab.engine.text.terminal import (
    DisplayedCharacterMap,
    map_displayed_characters,
    render_as_terminal,
)

HEAD_SHARE = 0.45
TAIL_SHARE = 0.35
ERRORS_SHARE = 0.2
"""Shares of the room. Head and tail get what errors do not need."""
MAX_UNUSED_SHARE = 0.25
"""Head or tail may leave this share of its room empty before a line is cut in the middle."""
CUT_LINE_PRECISION = 0.01
"""Share of a long line that may be cut too much. Each step of a closer search counts the line."""
MAX_ERROR_LINE_CHARS = 400
"""Maximum number of characters shown of a middle line that names an error."""
CHARS_BEFORE_ERROR = 100
"""How many of these characters come before the error."""
MAX_UNMARKED_GAP_CHARS = 30
"""Gaps of up to this many characters are shown, because a marker would not be shorter."""
MAX_ERROR_CANDIDATES = 2000
"""Maximum number of errors to choose from. If there are more, every second, third and so on is
used."""
METERED_CHUNK_CHARS = 2_000
"""Characters of lines whose tokens are counted together and remembered."""
_ROOM_SHARES_TRIED = (1.0, 0.97, 0.9, 0.8, 0.6, 0.4, 0.2, 0.1)
"""Shares of the room to try until the excerpt fits. Token counts of parts do not add up exactly."""

_NONZERO_NUMBER = re.compile(r"\d*[1-9]\d*")
"""Lines that differ only in such numbers are alike. Zero is not among them: "0 failed" is not like
"3 failed"."""

CharRange = tuple[int, int]
TokenCountFunction = Callable[[str], int]
_NEWLINE = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPieces:
    """The pieces that are kept of a text."""

    pieces: tuple[CharRange, ...]
    """Ranges of characters that are kept, ascending and without overlap. Each begins and ends at a
    line boundary, unless a single line is too long."""
    total_lines: int
    """Lines of the whole text."""
    shown_lines: int
    """Lines that are shown at least in part."""
    error_lines: int
    """Lines outside head and tail that are shown because they name an error."""
    repeated_lines: int
    """Lines left out because they repeat the line before them."""
    tokens: int
    """Tokens of the excerpt, including its markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """What is left out between two pieces."""

    lines: int
    """Whole lines."""
    characters: int
    """Characters of lines that are otherwise shown."""
    repeats: bool
    """Whether all of the lines are the same as the line above."""

    def marker(self) -> str:
        if self.repeats:
            return f"[… the line above {self.lines:,} more time{'s'[: self.lines != 1]} …]"
        lines = f"{self.lines:,} line{'s'[: self.lines != 1]}"
        characters = f"{self.characters:,} character{'s'[: self.characters != 1]}"
        if not self.characters:
            return f"[… {lines} left out …]"
        return f"[… {characters}{f' and {lines}' if self.lines else ''} left out …]"


class _LineMeter:
    """Estimate the tokens of the first or last lines. Each line is counted once: chunks of lines
    are counted and remembered, and within a chunk tokens are divided by characters. Of a line that
    is far longer than `max_tokens` only the beginning is counted."""

    def __init__(
        self,
        lines: Sequence[str],
        count: TokenCountFunction,
        max_tokens: int,
        *,
        backwards: bool,
    ) -> None:
        self._lines = lines
        self._count = count
        self._max_tokens = max_tokens
        self._backwards = backwards
        self._ends = [0]
        self._totals = [0]

    def _text(self, first: int, last: int) -> str:
        """Return some lines as they are in the text, numbered from the side that is counted
        from."""
        every = len(self._lines)
        if self._backwards:
            return "\n".join(self._lines[every - last : every - first])
        return "\n".join(self._lines[first:last])

    def measure(self, number: int) -> int:
        """Return the tokens of this number of lines."""
        while self._ends[-1] < number:
            self._count_chunk()
        chunk = bisect_left(self._ends, number)
        if self._ends[chunk] == number:
            return self._totals[chunk]
        first = self._ends[chunk - 1]
        before = self._totals[chunk - 1]
        share = len(self._text(first, number)) / len(self._text(first, self._ends[chunk]))
        return before + ceil(share * (self._totals[chunk] - before))

    def measure_with(self, number: int, extra: str) -> int:
        """Return the tokens of this number of lines and of a piece of the next line."""
        return self.measure(number) + self._count(extra)

    def _count_chunk(self) -> None:
        first = last = self._ends[-1]
        size = 0
        while last < len(self._lines) and size < METERED_CHUNK_CHARS:
            size += len(self._lines[-1 - last if self._backwards else last]) + 1
            last += 1
        self._ends.append(last)
        self._totals.append(self._totals[-1] + self._count_or_estimate(self._text(first, last)))

    def _count_or_estimate(self, text: str) -> int:
        size = 8 * self._max_tokens + 64
        while size < len(text):
            tokens = self._count(text[:size])
            if tokens > self._max_tokens:
                return ceil(tokens * len(text) / size)
            size *= 4
        return self._count(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineTable:
    """A text by its lines, with repeats of a line combined."""

    text: str
    """The original text."""
    sizes: array[int]
    """Characters of all lines before each line, as originally written, without newlines."""
    bodies: Sequence[str]
    """Each line as it is shown, without its newline."""
    kept: Sequence[int]
    """Numbers of the lines that are not repeats."""
    items: Sequence[str]
    """What is shown of each of these lines, with the marker for its repeats."""
    head_meter: _LineMeter
    """Counts items from the first one."""
    tail_meter: _LineMeter
    """Counts items from the last one."""
    places: dict[int, DisplayedCharacterMap] = field(
        default_factory=dict[int, DisplayedCharacterMap]
    )
    """Character maps of lines that were cut in the middle. They are expensive to compute."""

    def line_range(self, item: int) -> CharRange:
        line = self.kept[item]
        after = line + 1
        return self.sizes[line] + line, min(self.sizes[after] + after, len(self.text))

    def item_ranges(self, first: int, last: int) -> list[CharRange]:
        """Return the ranges of the items from `first` to before `last`."""
        if first < last and len(self.kept) == len(self.bodies):
            return [(self.line_range(first)[0], self.line_range(last - 1)[1])]
        return [self.line_range(item) for item in range(first, last)]

    def part_range(self, item: int, begin: int, end: int) -> CharRange:
        """Return the range of some shown characters of a line, including invisible ones at its
        ends."""
        start, stop = self.line_range(item)
        body = self.bodies[self.kept[item]]
        if 0 < begin < len(body) and _splits_surrogate_pair(body, begin):
            begin += 1
        if begin < end < len(body) and _splits_surrogate_pair(body, end):
            end -= 1
        if item not in self.places:
            self.places[item] = map_displayed_characters(self.text[start:stop].removesuffix("\n"))
        place = self.places[item].find_source_offset
        return (
            start + place(begin) if begin > 0 else start,
            start + place(end - 1) + 1 if end < len(body) else stop,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ErrorExcerpt:
    """A line that names an error."""

    pieces: tuple[CharRange, ...]
    """The line, or the text around the error if the line is long, and the line after it."""


def render_kept_pieces(text: str, pieces: Sequence[CharRange]) -> str:
    """Return what the model sees of a text: its pieces as a terminal shows them, and a marker for
    each gap.

    Without pieces the result is empty and has no marker.
    """
    if not pieces:
        return ""
    first, *gaps = _list_gaps(text, pieces)
    out = [f"{first.marker()}\n"] if first else []
    for (begin, end), gap in zip(pieces, gaps, strict=True):
        part = render_as_terminal(text[begin:end])
        out.append(part)
        if gap:
            out.append(f"{'' if part.endswith(_NEWLINE) else _NEWLINE}{gap.marker()}\n")
    return "".join(out).removesuffix("\n") if gaps[-1] else "".join(out)


def select_kept_pieces(
    text: str,
    max_tokens: int,
    count_tokens: TokenCountFunction,
    *,
    total_tokens: int | None = None,
) -> KeptPieces:
    """Select the pieces of a text that fit into `max_tokens`, including their markers.

    Nothing is left out without need. If the text is too long, repeated lines go first, then
    everything except head, tail and errors. If there is no room for a line and a marker, nothing is
    kept.

    Args:
        text: The whole text.
        max_tokens: The room for the excerpt.
        count_tokens: Counts the tokens of a text.
        total_tokens: The tokens of the whole text, if the caller knows them. This saves a count.
    """
    display = render_as_terminal(text)
    is_too_long = total_tokens is not None and total_tokens > max_tokens and display == text
    if not is_too_long and _fits(display, max_tokens, count_tokens):
        whole = ((0, len(text)),) if text else ()
        return _build_kept_pieces(text, whole, errors=0, tokens=count_tokens(display))
    lines = _build_line_table(text, display, count_tokens, max_tokens)
    if len(lines.kept) < len(lines.bodies) and _fits(
        "\n".join(lines.items), max_tokens, count_tokens
    ):
        pieces = _merge_pieces(lines.item_ranges(0, len(lines.kept)))
        if (tokens := count_tokens(render_kept_pieces(text, pieces))) <= max_tokens:
            return _build_kept_pieces(text, pieces, errors=0, tokens=tokens)
    left_out = _Gap(lines=len(lines.bodies), characters=0, repeats=False)
    usable = max_tokens - count_tokens(f"\n{left_out.marker()}\n")
    error_lines = _find_errors(lines, display) if usable > 0 else []
    for scale in _ROOM_SHARES_TRIED:
        if int(usable * scale) <= 0:
            break
        pieces, errors = _select_head_tail_errors(
            lines, error_lines, int(usable * scale), count_tokens
        )
        if (tokens := count_tokens(render_kept_pieces(text, pieces))) <= max_tokens:
            return _build_kept_pieces(text, pieces, errors=errors, tokens=tokens)
    return _build_kept_pieces(text, (), errors=0, tokens=0)


def _fits(shown: str, room: int, count: TokenCountFunction) -> bool:
    """Whether a text fits. Only the beginning of a far too long text is counted."""
    size = 8 * max(room, 0) + 64
    while size < len(shown):
        if count(shown[:size]) > room:
            return False
        size *= 4
    return count(shown) <= room


def _build_kept_pieces(
    text: str, pieces: tuple[CharRange, ...], *, errors: int, tokens: int
) -> KeptPieces:
    lines = _count_lines(text, 0, len(text))
    gaps = [gap for gap in _list_gaps(text, pieces) if gap] if pieces else []
    left_out = sum(gap.lines for gap in gaps) if pieces else lines
    repeats = sum(gap.lines for gap in gaps if gap.repeats)
    return KeptPieces(
        pieces=pieces,
        total_lines=lines,
        shown_lines=lines - left_out,
        error_lines=errors,
        repeated_lines=repeats,
        tokens=tokens,
    )


def _list_gaps(text: str, pieces: Sequence[CharRange]) -> list[_Gap | None]:
    """Return the gap before each piece and after the last one; None for no gap."""
    ends = [0, *(end for _, end in pieces)]
    begins = [*(begin for begin, _ in pieces), len(text)]
    above = [0, *(begin for begin, _ in pieces)]
    return [
        _measure_gap(text, begin, end, shown_from)
        for begin, end, shown_from in zip(ends, begins, above, strict=True)
    ]


def _measure_gap(text: str, begin: int, end: int, shown_from: int) -> _Gap | None:
    """Measure a gap: the rest of a line, whole lines, and the beginning of a line."""
    if begin >= end:
        return None
    first = begin if _is_line_start(text, begin) else text.find("\n", begin, end) + 1
    if not first and begin:
        return _Gap(lines=0, characters=end - begin, repeats=False)
    last = end if end == len(text) else max(text.rfind("\n", begin, end) + 1, first)
    lines = _count_lines(text, first, last)
    characters = max(first - begin - 1, 0) + end - last
    if not lines and not characters:
        characters = 1
    alike = not characters and first == begin and _repeats_line_above(text, begin, end, shown_from)
    return _Gap(lines=lines, characters=characters, repeats=alike)


def _count_lines(text: str, begin: int, end: int) -> int:
    """Count the lines of a range that begins and ends at a line boundary."""
    open_end = begin < end == len(text) and not text.endswith("\n")
    return text.count("\n", begin, end) + open_end


def _is_line_start(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _repeats_line_above(text: str, begin: int, end: int, shown_from: int) -> bool:
    """Whether a range consists only of lines that look the same as the line above."""
    above = text.rfind("\n", 0, max(begin - 1, 0)) + 1
    if not begin or above < shown_from:
        return False
    line = text[above:begin]
    times, rest = divmod(end - begin, len(line))
    if not rest and text[begin:end] == line * times:
        return True
    last = max(text.rfind("\n", begin, end - 1) + 1, begin)
    same = render_as_terminal(line).rstrip("\r\n")
    if render_as_terminal(text[last:end]).rstrip("\r\n") != same:
        return False
    others = render_as_terminal(text[begin:last]).split("\n")[:-1]
    return all(other.rstrip("\r") == same for other in others)


def _build_line_table(
    text: str, display: str, count: TokenCountFunction, max_tokens: int
) -> _LineTable:
    bodies = display.removesuffix("\n").split("\n")
    source_lines = bodies if display == text else text.removesuffix("\n").split("\n")
    sizes = array("q", accumulate(map(len, source_lines), initial=0))
    repeats = _count_repeats(bodies)
    numbers: Sequence[int] = range(len(bodies))
    items = bodies
    if repeats:
        repeated = {line + 1 + n for line, times in repeats.items() for n in range(times)}
        numbers = [line for line in numbers if line not in repeated]
        items = [
            f"{bodies[line]}\n{_format_repeat_marker(repeats[line])}"
            if line in repeats
            else bodies[line]
            for line in numbers
        ]
    return _LineTable(
        text=text,
        sizes=sizes,
        bodies=bodies,
        kept=numbers,
        items=items,
        head_meter=_LineMeter(items, count, max_tokens, backwards=False),
        tail_meter=_LineMeter(items, count, max_tokens, backwards=True),
    )


def _format_repeat_marker(times: int) -> str:
    return _Gap(lines=times, characters=0, repeats=True).marker()


def _count_repeats(bodies: Sequence[str]) -> dict[int, int]:
    """Return how often each line is repeated after itself, if a marker is shorter than the repeats.

    Blank lines and lines of one character are never combined: many of them are only a few tokens.
    """
    # Millions of lines may be blank, so nothing here looks at each in Python.
    equal_lines = compress(range(len(bodies)), map(eq, bodies, bodies[1:]))
    runs: dict[int, int] = {}
    first = last = -2
    for line in filter(bodies.__getitem__, equal_lines):
        first = first if line == last + 1 else line
        last = line
        runs[first] = line + 1 - first
    return {
        line: times
        for line, times in runs.items()
        if len(bodies[line].strip()) > 1
        and len(_format_repeat_marker(times).encode()) + 1 < times * (len(bodies[line]) + 1)
    }


def _select_head_tail_errors(
    lines: _LineTable, found: Sequence[_ErrorExcerpt], room: int, count: TokenCountFunction
) -> tuple[tuple[CharRange, ...], int]:
    """Return head, tail and errors that fit into the room, and the number of errors."""
    head, tail = _select_head_and_tail(lines, room * HEAD_SHARE, room * TAIL_SHARE)
    errors = _errors_between(head, found, tail)
    middle = errors[:: max(1, len(errors) // MAX_ERROR_CANDIDATES)]
    number = _find_largest_fitting(
        lambda some: count(_render_errors(lines.text, _pick_evenly(middle, some))),
        room * ERRORS_SHARE,
        len(middle),
    )
    errors = _pick_evenly(middle, number)
    spare = (room - count(_render_errors(lines.text, errors))) / (HEAD_SHARE + TAIL_SHARE)
    head, tail = _select_head_and_tail(lines, spare * HEAD_SHARE, spare * TAIL_SHARE)
    errors = _errors_between(head, errors, tail)
    pieces = (piece for error in errors for piece in error.pieces)
    return _merge_pieces(sorted([*head, *pieces, *tail])), len(errors)


def _select_head_and_tail(
    lines: _LineTable, for_head: float, for_tail: float
) -> tuple[list[CharRange], list[CharRange]]:
    """Return the pieces at the beginning and at the end. If nothing fits, a piece is empty."""
    every = len(lines.kept)
    head, more = _count_fitting_items(
        lines.head_meter,
        lambda number: lines.bodies[lines.kept[number]],
        lambda body, size: body[:size],
        (for_head, every),
    )
    first = lines.item_ranges(0, head)
    if more:
        first.append(lines.part_range(head, 0, more))
    tail, less = _count_fitting_items(
        lines.tail_meter,
        lambda number: lines.bodies[lines.kept[every - number - 1]],
        lambda body, size: body[len(body) - size :],
        (for_tail, every - head),
    )
    last = lines.item_ranges(every - tail, every)
    if less:
        item = every - tail - 1
        size = len(lines.bodies[lines.kept[item]])
        last.insert(0, lines.part_range(item, size - less, size))
    end = len(lines.text)
    return first or [(0, 0)], last or [(end, end)]


def _count_fitting_items(
    meter: _LineMeter,
    next_body: Callable[[int], str],
    cut_body: Callable[[str, int], str],
    limits: tuple[float, int],
) -> tuple[int, int]:
    """Return how many items fit into the room, and how many characters of the next one if it is
    long."""
    room, top = limits
    number = _find_largest_fitting(meter.measure, room, top)
    if number == top or (number and meter.measure(number) > room * (1 - MAX_UNUSED_SHARE)):
        return number, 0
    body = next_body(number)
    return number, _find_largest_fitting(
        lambda size: meter.measure_with(number, cut_body(body, size)),
        room,
        len(body),
        precision=CUT_LINE_PRECISION,
    )


def _find_largest_fitting(
    measure: Callable[[int], int], room: float, top: int, *, precision: float = 0.0
) -> int:
    """Return the largest number, at most `top`, whose measure is within the room. It may be smaller
    by the share `precision`.

    The search starts small, so that its cost depends on what fits. Measures mostly grow evenly, so
    a guess is usually close. Every second guess halves the range, for texts with uneven lines.
    """
    low = 0
    measured_low = 0
    high = top + 1
    measured_high = 0
    guess = min(1, top)
    halves = False
    while high - low > 1:
        measure_of_guess = measure(guess)
        if measure_of_guess <= room:
            low = guess
            measured_low = measure_of_guess
        else:
            high = guess
            measured_high = measure_of_guess
        if high - low <= max(1, precision * low):
            break
        if measured_high and halves:
            guess = (low + high) // 2
        elif measured_high:
            share = (room - measured_low) / (measured_high - measured_low)
            guess = low + int((high - low) * share)
        else:
            estimate = int(low * room / measured_low) if measured_low else top
            guess = min(estimate, 4 * low + 4)
        guess = min(max(guess, low + 1), high - 1)
        halves = not halves
    return low


def _find_errors(lines: _LineTable, display: str) -> list[_ErrorExcerpt]:
    """Return the lines that name an error, each with the line after it. Of similar lines only the
    first is used."""
    shapes: set[str] = set()
    message_shapes: set[str] = set()
    excerpts: list[_ErrorExcerpt] = []
    line = before = 0
    for begin in find_possible_error_line_starts(display):
        line += display.count("\n", before, begin)
        before = begin
        item = line if len(lines.kept) == len(lines.bodies) else bisect_left(lines.kept, line)
        body = lines.bodies[line]
        shape = _NONZERO_NUMBER.sub("1", body[:MAX_ERROR_LINE_CHARS])
        if shape in shapes or item == len(lines.kept) or lines.kept[item] != line:
            continue
        if len(body) <= MAX_ERROR_LINE_CHARS:
            shapes.add(shape)
        if (at := find_error_offset(body)) is None:
            continue
        message_shape = _NONZERO_NUMBER.sub("1", body[at : at + MAX_ERROR_LINE_CHARS])
        if message_shape not in message_shapes:
            message_shapes.add(message_shape)
            excerpts.append(_ErrorExcerpt(pieces=_error_pieces(lines, item, at)))
    return excerpts


def _error_pieces(lines: _LineTable, item: int, at: int) -> tuple[CharRange, ...]:
    if len(lines.bodies[lines.kept[item]]) > MAX_ERROR_LINE_CHARS:
        begin = max(at - CHARS_BEFORE_ERROR, 0)
        return (lines.part_range(item, begin, begin + MAX_ERROR_LINE_CHARS),)
    after = item + 1
    if after == len(lines.kept) or len(lines.bodies[lines.kept[after]]) > MAX_ERROR_LINE_CHARS:
        return (lines.line_range(item),)
    return lines.line_range(item), lines.line_range(after)


def _pick_evenly(errors: Sequence[_ErrorExcerpt], number: int) -> Sequence[_ErrorExcerpt]:
    """Pick this number of errors at even distances, including the first and the last."""
    if number < 2 or number >= len(errors):
        return errors[:number]
    return [errors[at * (len(errors) - 1) // (number - 1)] for at in range(number)]


def _render_errors(text: str, errors: Sequence[_ErrorExcerpt]) -> str:
    """Return about the text that errors add to the excerpt."""
    marker = _Gap(lines=1000, characters=0, repeats=False).marker()
    pieces = _merge_pieces(sorted(piece for error in errors for piece in error.pieces))
    return "".join(f"{marker}\n{render_as_terminal(text[begin:end])}" for begin, end in pieces)


def _errors_between(
    head: Sequence[CharRange], errors: Sequence[_ErrorExcerpt], tail: Sequence[CharRange]
) -> Sequence[_ErrorExcerpt]:
    begin = head[-1][1]
    end = tail[0][0]
    return [one for one in errors if begin <= one.pieces[0][0] and one.pieces[0][1] <= end]


def _merge_pieces(pieces: Iterable[CharRange]) -> tuple[CharRange, ...]:
    """Merge pieces that overlap, touch or nearly touch."""
    ranges: list[CharRange] = []
    for begin, end in pieces:
        if ranges and begin - ranges[-1][1] <= MAX_UNMARKED_GAP_CHARS:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        elif begin < end:
            ranges.append((begin, end))
    return tuple(ranges)


def _splits_surrogate_pair(text: str, at: int) -> bool:
    """Whether a position is inside a character that is written as two."""
    return "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"
