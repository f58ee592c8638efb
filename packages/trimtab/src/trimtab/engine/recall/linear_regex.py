"""Pattern search whose time grows with the text, whatever the pattern.

Python's own expressions backtrack: a model that writes `(a+)+$` could keep a process busy forever.
Here all possible matches are followed at once, and each step is remembered. An unsupported pattern,
for example one with a back reference, is searched as a plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_STATES = 500
"""Maximum number of states of a pattern, with repetitions written out."""
MAX_STEPS = 400_000
"""Maximum number of states visited for new steps. Above it, the pattern is too expensive."""
MAX_REPEATS = 100
"""Maximum number of repetitions of one item."""

_BEGIN = "\x02"
_END = "\x03"
_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "w": lambda char: char.isalnum() or char == "_",
    "s": str.isspace,
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}

CharTest = Callable[[str], bool]
"""Whether a character is allowed in a state."""
StateBuilder = Callable[[int], int]
"""Adds the states of an item before the state that follows, and returns their first state."""


class UnsupportedPattern(ValueError):
    """The pattern is not supported here, or it is too expensive."""


class LinearPattern:
    """Finds lines that contain a match of a pattern, ignoring case."""

    def __init__(self, expression: str) -> None:
        self._tests: list[CharTest | None] = [None]  # place 0 is the end
        self._next: list[tuple[int, ...]] = [()]
        self._text = expression
        self._at = 0
        build = self._either()
        if self._at < len(expression):
            raise UnsupportedPattern(f"a bracket is closed at {self._at} that was not opened")
        self._start = self._reached({build(0)})
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._same = {self._start: self._start}  # equal sets as one: they are compared at once
        self._steps = 0

    def occurs_in(self, line: str) -> bool:
        """Whether the pattern matches anywhere in a line."""
        return next(self.find_match_ends(line), None) is not None

    def find_match_ends(self, line: str) -> Iterator[int]:
        """Yield the offsets at which matches end. The next match is searched after each."""
        if 0 in self._start:
            yield 0
        at = self._start
        for end, char in enumerate(f"{_BEGIN}{_fold(line)}{_END}"):
            after = self._known.get((at, char))
            at = self._step(at, char) if after is None else after
            if 0 in at:
                yield min(end, len(line))
                at = self._start

    def _step(self, at: frozenset[int], char: str) -> frozenset[int]:
        self._steps += len(at)
        if self._steps > MAX_STEPS:
            raise UnsupportedPattern(f"it takes more than {MAX_STEPS} steps")
        successors = {
            n for p in at if (test := self._tests[p]) and test(char) for n in self._next[p]
        }
        after = self._start | self._reached(successors)
        after = self._same.setdefault(after, after)
        self._known[at, char] = after
        return after

    def _reached(self, places: set[int]) -> frozenset[int]:
        """Return the states, and all states that they reach without a character."""
        closure = set(places)
        new = list(places)
        while new:
            place = new.pop()
            if self._tests[place] is None:
                more = [each for each in self._next[place] if each not in closure]
                closure.update(more)
                new += more
        return frozenset(closure)

    def _place(self, test: CharTest | None, *after: int) -> int:
        if len(self._tests) >= MAX_STATES:
            raise UnsupportedPattern(f"it has more than {MAX_STATES} places")
        self._tests.append(test)
        self._next.append(after)
        return len(self._tests) - 1

    def _peek(self, *signs: str) -> bool:
        return self._text.startswith(signs, self._at)

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise UnsupportedPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _either(self) -> StateBuilder:
        ways = [self._row()]
        while self._peek("|"):
            self._at += 1
            ways.append(self._row())
        if len(ways) == 1:
            return ways[0]
        return lambda after: self._place(None, *(way(after) for way in ways))

    def _row(self) -> StateBuilder:
        items: list[StateBuilder] = []
        while self._at < len(self._text) and not self._peek("|", ")"):
            items.append(self._repeated(self._item()))

        def build(after: int) -> int:
            for item in reversed(items):
                after = item(after)
            return after

        return build

    def _repeated(self, item: StateBuilder) -> StateBuilder:
        while quantifier := re.compile(r"([*+?])|\{(\d{0,3})(,?)(\d{0,3})\}").match(
            self._text, self._at
        ):
            self._at = quantifier.end()
            if self._peek("?"):
                self._at += 1  # greedy or not, a line holds it or does not
            sign, least, comma, most = quantifier.groups()
            low = {"*": 0, "+": 1, "?": 0}.get(sign or "", int(least or 0))
            high = {"*": None, "+": None, "?": 1}.get(
                sign or "", int(most) if most else None if comma else low
            )
            item = self._times(item, low, high)
        return item

    def _times(self, item: StateBuilder, low: int, high: int | None) -> StateBuilder:
        if max(low, high or 0) > MAX_REPEATS:
            raise UnsupportedPattern(f"an item is repeated more than {MAX_REPEATS} times")

        def build(after: int) -> int:
            if high is None:
                again = self._place(None)
                self._next[again] = (item(again), after)
                after = again
            for _ in range((high or low) - low):
                after = self._place(None, item(after), after)
            for _ in range(low):
                after = item(after)
            return after

        return build

    def _item(self) -> StateBuilder:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._one_of(self._members())
            case ".":
                return self._one_of(lambda _: True)
            case "^":
                return self._exactly(_BEGIN)
            case "$":
                return self._exactly(_END)
            case "\\":
                return self._escaped(self._take())
            case "*" | "+" | "?":
                raise UnsupportedPattern(f"there is nothing before {char} to repeat")
            case _:
                return self._exactly(_fold(char))

    def _group(self) -> StateBuilder:
        if self._peek("?"):
            if not self._peek("?:"):
                raise UnsupportedPattern("groups with conditions are not understood")
            self._at += 2
        inside = self._either()
        if self._take() != ")":
            raise UnsupportedPattern("a bracket is not closed")
        return inside

    def _escaped(self, char: str) -> StateBuilder:
        if char in "bB":
            return lambda after: after  # more lines than asked for do no harm
        if (test := _char_class(char)) is not None:
            return self._one_of(test)
        if char.isalnum() and char not in _CONTROLS:
            raise UnsupportedPattern(f"\\{char} is not understood")
        return self._exactly(_CONTROLS.get(char, char))

    def _members(self) -> CharTest:
        tests: list[CharTest] = []
        inverse = self._peek("^")
        self._at += inverse
        first = True
        while first or not self._peek("]"):
            first = False
            char = self._take()
            if char == "\\":
                char = self._take()
                if (test := _char_class(char)) is not None:
                    tests.append(test)
                    continue
                char = _CONTROLS.get(char, char)
            last = char
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                last = self._take()
            tests.append(_char_range(char, last))
        self._at += 1
        return lambda char: any(test(char) for test in tests) != inverse

    def _exactly(self, wanted: str) -> StateBuilder:
        return lambda after: self._place(lambda char: char == wanted, after)

    def _one_of(self, test: CharTest) -> StateBuilder:
        return lambda after: self._place(
            lambda char: char not in (_BEGIN, _END) and test(char), after
        )


def compile_line_matcher(expression: str) -> Callable[[str], list[int]]:
    """Return a function that lists the offsets at which matches end in a line, empty for none.

    An unsupported pattern is searched as a plain text.
    """
    needle = _fold(expression)

    def find_plain(line: str) -> list[int]:
        haystack = _fold(line)
        ends: list[int] = []
        while (at := haystack.find(needle, ends[-1] if ends else 0)) >= 0:
            ends.append(at + len(needle))
        return ends

    try:
        pattern = LinearPattern(expression)
    except (UnsupportedPattern, RecursionError):
        return find_plain
    dear = False

    def find(line: str) -> list[int]:
        nonlocal dear
        if not dear:
            try:
                return [*pattern.find_match_ends(line)]
            except UnsupportedPattern:
                dear = True
        return find_plain(line)

    return find


def _fold(text: str) -> str:
    """Return a text in lower case, with each character at its offset."""
    return text.replace("İ", "i").lower()  # the only character whose lower case is two


def _char_class(char: str) -> CharTest | None:
    test = _CLASSES.get(char.lower())
    if test is None or char.islower():
        return test
    return lambda given: not test(given)


def _char_range(first: str, last: str) -> CharTest:
    # Lines are looked at in lower case: A-Z means its small letters, too.
    low = first.lower()
    high = last.lower()
    return lambda char: first <= char <= last or low <= char <= high
