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
_QUANTIFIER = re.compile(r"([*+?])|\{(\d{0,3})(,?)(\d{0,3})\}")
_SIGN_REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
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
        self._tests: list[CharTest | None] = [None]  # state 0 is the end
        self._next: list[tuple[int, ...]] = [()]
        self._text = expression
        self._position = 0
        build = self._parse_alternatives()
        if self._position < len(expression):
            raise UnsupportedPattern(f"a bracket is closed at {self._position} that was not opened")
        self._start = self._follow_empty_steps({build(0)})
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._state_sets = {self._start: self._start}  # equal sets as one, compared at once
        self._visit_count = 0

    def find_match_ends(self, line: str) -> Iterator[int]:
        """Yield the offsets at which matches end. The next match is searched after each."""
        if 0 in self._start:
            yield 0
        states = self._start
        for end, char in enumerate(f"{_BEGIN}{_fold(line)}{_END}"):
            next_states = self._steps.get((states, char))
            states = self._compute_step(states, char) if next_states is None else next_states
            if 0 in states:
                yield min(end, len(line))
                states = self._start

    def _compute_step(self, states: frozenset[int], char: str) -> frozenset[int]:
        self._visit_count += len(states)
        if self._visit_count > MAX_STEPS:
            raise UnsupportedPattern(f"it takes more than {MAX_STEPS} steps")
        successors: set[int] = set()
        for state in states:
            test = self._tests[state]
            if test is not None and test(char):
                successors.update(self._next[state])
        next_states = self._start | self._follow_empty_steps(successors)
        next_states = self._state_sets.setdefault(next_states, next_states)
        self._steps[states, char] = next_states
        return next_states

    def _follow_empty_steps(self, states: set[int]) -> frozenset[int]:
        """Return the states, and all states that they reach without a character."""
        closure = set(states)
        unexplored = list(states)
        while unexplored:
            state = unexplored.pop()
            if self._tests[state] is None:
                unexplored += {*self._next[state]} - closure
                closure.update(self._next[state])
        return frozenset(closure)

    def _add_state(self, test: CharTest | None, *next_states: int) -> int:
        if len(self._tests) >= MAX_STATES:
            raise UnsupportedPattern(f"it has more than {MAX_STATES} states")
        self._tests.append(test)
        self._next.append(next_states)
        return len(self._tests) - 1

    def _peek(self, *signs: str) -> bool:
        return self._text.startswith(signs, self._position)

    def _take(self) -> str:
        if self._position >= len(self._text):
            raise UnsupportedPattern("it ends too early")
        self._position += 1
        return self._text[self._position - 1]

    def _parse_alternatives(self) -> StateBuilder:
        alternatives = [self._parse_sequence()]
        while self._peek("|"):
            self._position += 1
            alternatives.append(self._parse_sequence())
        if len(alternatives) == 1:
            return alternatives[0]
        return lambda end: self._add_state(None, *(build(end) for build in alternatives))

    def _parse_sequence(self) -> StateBuilder:
        items: list[StateBuilder] = []
        while self._position < len(self._text) and not self._peek("|", ")"):
            items.append(self._parse_quantifiers(self._parse_item()))

        def build(end: int) -> int:
            for item in reversed(items):
                end = item(end)
            return end

        return build

    def _parse_quantifiers(self, item: StateBuilder) -> StateBuilder:
        while quantifier := _QUANTIFIER.match(self._text, self._position):
            self._position = quantifier.end()
            if self._peek("?"):
                self._position += 1  # greedy or not, a line holds it or does not
            sign, low_digits, comma, high_digits = quantifier.groups()
            if sign:
                low, high = _SIGN_REPEATS[sign]
            else:
                low = int(low_digits or 0)
                high = None if comma else low
                if high_digits:
                    high = int(high_digits)
            item = self._repeat(item, low, high)
        return item

    def _repeat(self, item: StateBuilder, low: int, high: int | None) -> StateBuilder:
        if max(low, high or 0) > MAX_REPEATS:
            raise UnsupportedPattern(f"an item is repeated more than {MAX_REPEATS} times")

        def build(end: int) -> int:
            if high is None:
                loop = self._add_state(None)
                self._next[loop] = (item(loop), end)
                end = loop
            for _ in range((high or low) - low):
                end = self._add_state(None, item(end), end)
            for _ in range(low):
                end = item(end)
            return end

        return build

    def _parse_item(self) -> StateBuilder:
        char = self._take()
        match char:
            case "(":
                return self._parse_group()
            case "[":
                return self._match_if(self._parse_set())
            case ".":
                return self._match_if(lambda _: True)
            case "^":
                return self._match_char(_BEGIN)
            case "$":
                return self._match_char(_END)
            case "\\":
                return self._build_escape(self._take())
            case "*" | "+" | "?":
                raise UnsupportedPattern(f"there is nothing before {char} to repeat")
            case _:
                return self._match_char(_fold(char))

    def _parse_group(self) -> StateBuilder:
        if self._peek("?"):
            if not self._peek("?:"):
                raise UnsupportedPattern("groups with conditions are not understood")
            self._position += 2
        inside = self._parse_alternatives()
        if self._take() != ")":
            raise UnsupportedPattern("a bracket is not closed")
        return inside

    def _build_escape(self, char: str) -> StateBuilder:
        if char in "bB":
            return lambda end: end  # more lines than asked for do no harm
        if (test := _char_class(char)) is not None:
            return self._match_if(test)
        if char.isalnum() and char not in _CONTROLS:
            raise UnsupportedPattern(f"\\{char} is not understood")
        return self._match_char(_CONTROLS.get(char, char))

    def _parse_set(self) -> CharTest:
        tests: list[CharTest] = []
        is_inverse = self._peek("^")
        self._position += is_inverse
        start = self._position
        while self._position == start or not self._peek("]"):
            char = self._take()
            if char == "\\":
                char = self._take()
                if (test := _char_class(char)) is not None:
                    tests.append(test)
                    continue
                char = _CONTROLS.get(char, char)
            last = char
            if self._peek("-") and not self._peek("-]"):
                self._position += 1
                last = self._take()
            tests.append(_char_range(char, last))
        self._position += 1
        return lambda char: any(test(char) for test in tests) != is_inverse

    def _match_char(self, expected: str) -> StateBuilder:
        return lambda end: self._add_state(lambda char: char == expected, end)

    def _match_if(self, test: CharTest) -> StateBuilder:
        return lambda end: self._add_state(
            lambda char: char not in (_BEGIN, _END) and test(char), end
        )


def compile_line_matcher(expression: str) -> Callable[[str], list[int]]:
    """Return a function that lists the offsets at which matches end in a line, empty for none.

    An unsupported pattern is searched as a plain text.
    """
    needle = _fold(expression)

    def find_plain(line: str) -> list[int]:
        haystack = _fold(line)
        ends: list[int] = []
        while (start := haystack.find(needle, ends[-1] if ends else 0)) >= 0:
            ends.append(start + len(needle))
        return ends

    try:
        pattern = LinearPattern(expression)
    except (UnsupportedPattern, RecursionError):
        return find_plain
    is_too_expensive = False

    def find(line: str) -> list[int]:
        nonlocal is_too_expensive
        if not is_too_expensive:
            try:
                return [*pattern.find_match_ends(line)]
            except UnsupportedPattern:
                is_too_expensive = True
        return find_plain(line)

    return find


def _fold(text: str) -> str:
    """Return a text in lower case, with each character at its offset."""
    return text.replace("İ", "i").lower()  # the only character whose lower case is two


def _char_class(char: str) -> CharTest | None:
    test = _CLASSES.get(char.lower())
    if test is None or char.islower():
        return test
    return lambda other: not test(other)


def _char_range(first: str, last: str) -> CharTest:
    # Lines are looked at in lower case: A-Z means its small letters, too.
    low = first.lower()
    high = last.lower()
    return lambda char: first <= char <= last or low <= char <= high
