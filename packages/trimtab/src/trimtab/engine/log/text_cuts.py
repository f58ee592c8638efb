"""Cut a text to a maximum size, and say in the text that it was cut.

The functions import little, so that a program that cuts one text starts fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trimtab.engine.log.excerpts import KeptPieces, render_kept_pieces, select_kept_pieces

TruncateStrategy = Literal["head", "tail", "both"]
"""The end of a text that stays when it is cut."""

CapUnit = Literal["tokens", "bytes/4", "bytes", "chars"]
"""What the size of a text is measured in."""
MIN_CUT_FILL = 0.9
"""Share of its room that both ends of a cut text take together, if possible."""

_LONGEST_LINES_NOTE = (
    "1,000,000 of 1,000,000 lines, 1,000 of them in between look like errors, 1,000,000 repeated"
)
"""About the longest description of what is shown of a long text."""

TokenCountFunction = Callable[[str], int]


def format_truncation_indicator(
    strategy: TruncateStrategy, kept_tokens: int, total_tokens: int
) -> str:
    """Return the indicator of a result that was cut to a token limit."""
    where = {"head": "first", "tail": "last", "both": "first+last"}[strategy]
    return f"[truncated: kept {where} ~{kept_tokens} of ~{total_tokens} tokens ({strategy})]"


def format_byte_truncation_indicator(kept_bytes: int, total_bytes: int) -> str:
    """Return the indicator of a file that was cut to a byte limit. It follows the kept text
    directly."""
    return f"...\n[truncated, showing first {kept_bytes} bytes of {total_bytes} total]"


def format_shortened_header(kept_tokens: int, total_tokens: int, description: str) -> str:
    """Return the first line of a shortened result that shows more than head and tail."""
    return f"[shortened: ~{kept_tokens} of ~{total_tokens} tokens are shown: {description}]"


def format_excerpt_header(kept_tokens: int, total_tokens: int) -> str:
    """Return the first line of a result of which only some lines are still shown."""
    return f"[shortened: ~{kept_tokens} of ~{total_tokens} tokens are shown]"


def add_recall_handle(placeholder: str, handle: str, recall_hint: str) -> str:
    """Add to a placeholder, before its closing bracket, how to get what a handle names. An empty
    hint adds nothing."""
    if not recall_hint or not placeholder.endswith("]"):
        return placeholder
    return f"{placeholder[:-1]} · {format_recall_hint(handle, recall_hint)}]"


def format_recall_hint(handle: str, recall_hint: str) -> str:
    """Return a hint with the handle in it."""
    return recall_hint.replace("{handle}", handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCap:
    """The maximum size of one text, and how the text says that it was cut."""

    amount: int
    """The maximum, in `unit`. It includes the indicator unless `indicator_is_extra` is set."""
    unit: CapUnit = "tokens"
    """The unit of `amount`. `tokens` uses the window's own counter."""
    strategy: TruncateStrategy | Literal["lines"] = "head"
    """Which end is kept. `lines` keeps both ends and the lines between them that look like
    errors."""
    format_indicator: Callable[[TruncateStrategy, int, int], str] = format_truncation_indicator
    """Returns the indicator for the strategy, the kept amount and the total amount. `lines` has its
    own indicator."""
    indicator_is_extra: bool = False
    """True if `amount` does not include the indicator. The indicator then names the exact kept
    amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCut:
    """What is kept of a text, and the words that say so."""

    words: str
    """The indicator, with the line ends around it."""
    head: int = 0
    """Characters that are kept from the start."""
    tail: int = 0
    """Characters that are kept from the end."""
    pieces: tuple[tuple[int, int], ...] = ()
    """The ranges that are kept, if the cut is made in lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCutter:
    """Cuts texts to a cap."""

    cap: TextCap
    """The maximum size."""
    count_tokens: TokenCountFunction
    """Counts the tokens of a text."""
    add_handle: Callable[[str], str] = lambda words: words
    """Adds the place of the whole text to the indicator."""

    def cut(self, text: str, total: int) -> TextCut:
        """Cut a text whose size in the cap's unit is `total`."""
        return (
            self._cut_in_lines(text, total)
            if self.cap.strategy == "lines"
            else self._cut_at_ends(text, total, self.cap.strategy)
        )

    def measure(self, text: str) -> int:
        """Return the size of a text in the cap's unit."""
        match self.cap.unit:
            case "tokens":
                return self.count_tokens(text)
            case "bytes/4":
                return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4
            case "bytes":
                return len(text.encode("utf-8", "surrogatepass"))
            case "chars":
                return len(text)

    def count_fitting_chars(self, text: str, room: int, *, end: bool = False) -> int:
        """Return about how many characters fit into the room, from the start or from the end."""
        unit = self.cap.unit
        if unit == "chars":
            return min(room, len(text))
        if unit != "tokens":
            limit = room * 4 if unit == "bytes/4" else room
            return (
                count_tail_chars_within_bytes(text, limit)
                if end
                else count_chars_within_bytes(text, limit)
            )
        count, whole = self.count_tokens, len(text)

        def take(chars: int) -> str:
            return text[whole - chars :] if end else text[:chars]

        # A twentieth of the room is precise enough.
        step = max(1, room // 20)
        # Guesses by the tokens a character: the search below then counts only what lies between.
        fitting, too_long, guess = 0, whole + 1, max(1, room)
        for _ in range(4):
            if not fitting < guess < too_long:
                break
            tokens = count(take(guess))
            fits = tokens <= room
            fitting, too_long = (guess, too_long) if fits else (fitting, guess)
            guess = guess * room // max(1, tokens) + (step if fits else -step)
            guess = min(guess, whole)
        low, high = 0, whole
        while high - low > max(1, min(room, high) // 20):
            middle = (low + high + 1) // 2
            fits = middle <= fitting or (middle < too_long and count(take(middle)) <= room)
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def _cut_at_ends(self, text: str, total: int, strategy: TruncateStrategy) -> TextCut:
        cap = self.cap
        unit = 4 if cap.unit == "chars" else 1
        words = cap.format_indicator(strategy, -(-cap.amount // unit), -(-total // unit))
        sign = self.add_handle(words)
        aside = 0 if cap.indicator_is_extra else self.measure(sign) + 2
        head, tail = self._split(text, max(0, cap.amount - aside), f"\n{sign}\n")
        kept = text[:head] + text[len(text) - tail :]
        if cap.indicator_is_extra:
            words = cap.format_indicator(strategy, self.measure(kept), total)
        elif aside > cap.amount // 2:
            # So little is kept that a round figure would be far off.
            amount = -(-self.measure(kept) // unit)
            words = cap.format_indicator(strategy, amount, -(-total // unit))
        words = self.add_handle(words)
        if not words.startswith("..."):
            words = ("\n" if head else "") + words + ("\n" if tail else "")
        return TextCut(words=words, head=head, tail=tail)

    def _cut_in_lines(self, text: str, total: int) -> TextCut:
        """Keep both ends of a text and the lines between them that look like errors."""
        cap = self.cap
        longest = format_shortened_header(total, total, _LONGEST_LINES_NOTE)
        aside = self.measure(self.add_handle(longest)) + 2
        room = max(0, cap.amount - aside)
        unit = 4 if cap.unit == "chars" else 1
        while True:
            kept = select_kept_pieces(text, room, self.measure, total_tokens=total)
            words = self.add_handle(
                format_shortened_header(
                    -(-kept.tokens // unit), -(-total // unit), _describe_kept_pieces(kept)
                )
            )
            # Odd texts may be estimated at more beside the header than alone.
            excess = self.measure(render_text_cut(text, words, 0, 0, kept.pieces)) - cap.amount
            if excess <= 0 or not kept.pieces:
                return TextCut(words=words, pieces=kept.pieces)
            room -= max(excess, room // 50)

    def _split(self, text: str, room: int, indicator: str) -> tuple[int, int]:
        """Return the characters to keep from the start and from the end."""
        match self.cap.strategy:
            case "head":
                return self.count_fitting_chars(text, room), 0
            case "tail":
                return 0, self.count_fitting_chars(text, room, end=True)
            case _:
                return self._split_for_both_ends(text, room, indicator)

    def _split_for_both_ends(self, text: str, room: int, indicator: str) -> tuple[int, int]:
        """Return the characters to keep from the start and from the end, half of the room each.

        Odd texts may be estimated at more or at less beside each other. If both ends together with
        the indicator take much less than the room, or more, the same number of characters is kept
        from each end, and then more from the start if there is room.
        """

        def measure(head: int, tail: int) -> int:
            return self.measure(text[:head] + indicator + text[len(text) - tail :])

        most = room + self.measure(indicator)
        head = self.count_fitting_chars(text, room // 2)
        tail = min(self.count_fitting_chars(text, room // 2, end=True), len(text) - head)
        size = measure(head, tail)
        if MIN_CUT_FILL * most <= size <= most:
            return head, tail

        def widest(limit: int, tokens_at: Callable[[int], int]) -> int:
            low, high = 0, limit
            while high - low > max(1, low // 20):
                middle = (low + high) // 2
                low, high = (middle, high) if tokens_at(middle) <= most else (low, middle)
            return low

        both = widest(len(text) // 2, lambda chars: measure(chars, chars))
        more = widest(len(text) - 2 * both, lambda chars: measure(both + chars, both))
        wider = (both + more, both)
        return wider if size > most or measure(*wider) > size else (head, tail)


def render_text_cut(
    text: str, words: str, head: int, tail: int, pieces: Sequence[tuple[int, int]]
) -> str:
    """Return what is shown of a text: head, indicator and tail, or indicator and pieces.

    Never keep more than there is.
    """
    if pieces:
        return f"{words}\n{render_kept_pieces(text, pieces)}"
    return f"{text[:head]}{words}{text[-tail:] if tail else ''}"


def count_chars_within_bytes(text: str, max_bytes: int) -> int:
    """Count the characters from the start that fit in `max_bytes` bytes of UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return len(text)
    end = max(max_bytes, 0)
    # A byte of the form 10xxxxxx continues a character: step back to where one begins.
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return len(data[:end].decode("utf-8", "surrogatepass"))


def count_tail_chars_within_bytes(text: str, max_bytes: int) -> int:
    """Count the characters from the end that fit in `max_bytes` bytes of UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return len(text)
    start = len(data) - max(max_bytes, 0)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return len(data[start:].decode("utf-8", "surrogatepass"))


def _describe_kept_pieces(kept: KeptPieces) -> str:
    """Return the words that describe what a cut in lines still shows."""
    parts = [f"{kept.shown_lines:,} of {kept.total_lines:,} lines"]
    if kept.error_lines:
        errors = "looks like an error" if kept.error_lines == 1 else "look like errors"
        parts.append(f"{kept.error_lines:,} of them in between {errors}")
    if kept.repeated_lines:
        parts.append(f"{kept.repeated_lines:,} repeated lines left out")
    if kept.shown_lines == kept.total_lines:
        parts.append("long ones only in part")
    return ", ".join(parts)
