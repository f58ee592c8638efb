"""What each line of a tool result is worth: how likely it is that the agent needs it again.

A line is needed if a later call names something in it, or if a later edit quotes it. How often that
happens was counted on recorded conversations, for each kind of tool, and it falls with age. A name
or a line counts only if no newer or permanent text shows it: words of the user, texts and arguments
of the assistant, newer results. So what was read again, or is repeated, is worth nothing where it
stands first. All numbers are integers, so that every machine decides the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Literal, NamedTuple

from trimtab.engine.log.edits import extract_editable_text
from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Message, Text, ToolCall
from trimtab.engine.policy.planning.plan import PLACEHOLDER_TOKENS, Plan
from trimtab.engine.text.identifiers import (
    count_identifiers,
    join_string_values,
    list_identifiers_by_line,
)
from trimtab.engine.window.structure import Entry, ToolResultView
from trimtab.engine.window.window import Window

ToolKind = Literal["agent", "edit", "read", "search", "run", "other"]

_TOOL_KIND_PATTERNS: tuple[tuple[ToolKind, re.Pattern[str]], ...] = (
    ("agent", re.compile(r"^(?:task|agent)$|agent|delegate")),
    ("edit", re.compile(r"edit|write|patch|replace|create|update|insert")),
    ("read", re.compile(r"read|view|open|fetch|\b(?:cat|sed|head|tail|nl|less|bat)\b")),
    ("search", re.compile(r"grep|search|find|glob|list|\b(?:rg|ls|fd|ag|tree)\b")),
)
_SHELL_TOOL = re.compile(r"bash|shell|exec|run|terminal|command")
_LEADING_COMMAND = re.compile(r"^(?:bash\s+-lc\s+)?(?:cd [^&;]+&&\s*)*\s*([\w./-]+)")


class Need(NamedTuple):
    """How often something in a fresh result of a kind of tool is needed later, in a million."""

    name: int
    """A name."""
    path: int
    """A name with a slash. Outputs of searches and commands list many."""
    line: int
    """A line, quoted by an edit."""


NEED_BY_KIND: dict[ToolKind, Need] = {
    "agent": Need(400_000, 400_000, 50_000),
    "read": Need(220_000, 220_000, 100_000),
    "edit": Need(220_000, 220_000, 60_000),
    "run": Need(220_000, 70_000, 10_000),
    "search": Need(200_000, 25_000, 5_000),
    "other": Need(200_000, 200_000, 10_000),
}
"""Counted on recorded conversations. A sub-agent's report costs a whole session to get again."""
HALF_LIFE_ROUNDS = 10
"""After so many rounds a need is half as likely, after twice as many a third, and so on."""
MAX_NAME_CHARS = 60
"""Nobody writes longer names again."""
OUTPUT_KINDS = frozenset[ToolKind]({"run", "search", "agent"})
"""Kinds whose names are often times, hashes and line numbers: names with many digits count
nothing."""
MIN_QUOTED_CHARS = 6
"""Characters of a line that an edit could quote. Shorter ones stand everywhere."""
LONG_LINE_CHARS = 300
"""Above this size a line is split at the ends of JSON values and of sentences."""
MIN_UNIT_CHARS = 80
"""Minimum characters of a piece of a long line."""
TOKENS_PER_MEASURED_NAME = 60
"""A text with fewer names than one in so many tokens is prose: what is needed of it shows in no
name."""
GAP_TOKENS = 8
"""Tokens of the mark in the place of a gap."""
HEADER_TOKENS = 24
"""Tokens of the line that says that a result is shortened, or masked."""
MAX_RAISED_PRICE = 10_000
"""The price of a million tokens, in needs, above which the oldest rounds are worth less than the
lines of results that are left: in a very long session only the newest ones."""
MIN_CUT_TOKENS = 20
MIN_CUT_DIVISOR = 10
"""A cut must free this many tokens, and this part of the result."""

_LINE_NUMBERS = re.compile(r"(?m)^[ ]*\d+[→\t:|-]")
_UNIT_END = re.compile(r'[}\]"\w],|[.;!?]\s|[。！？]')


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCut:
    """A result with the lines that are worth their price."""

    result: ToolResultView
    """The result before the cut."""
    pieces: tuple[tuple[int, int], ...]
    """The ranges of characters that stay; none if the result is masked."""
    tokens: int
    """Tokens of the result now."""
    freed_tokens: int
    """Estimated tokens that the cut frees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The lines of a result that are worth their price."""

    pieces: tuple[tuple[int, int], ...]
    """Their ranges of characters."""
    gaps: int
    """Number of gaps before, between and after them."""
    value: int
    """How much of them will be needed, in a million."""
    shown: list[str]
    """The names and lines that nothing newer shows."""


@dataclass(slots=True)
class ResultFacts:
    """What is known of the text of a result, computed once."""

    need: Need
    """The needs of the kind of its tool."""
    length: int
    """Characters of the text."""
    starts: list[int]
    """Where each line begins, and the end of the last one."""
    names: list[tuple[str, ...]]
    """The names in each line."""
    paths: list[tuple[str, ...]]
    """The names with a slash in each line."""
    quotes: list[str]
    """Each line as an edit would quote it; empty if it is too short."""
    name_count: int
    """Number of names in all lines."""
    _shown: tuple[Edit | None, Sequence[int], tuple[str, ...]] | None = None
    """The newest edit that was asked about, the lines after it, and their names and quotes."""

    def list_shown_lines(self, edit: Edit | None) -> tuple[Sequence[int], tuple[str, ...]]:
        """Return the lines that are shown after an edit, none if the text was replaced, and their
        names and quotes, each once."""
        if self._shown is None or self._shown[0] is not edit:
            lines = self._list_lines_after(edit)
            words = {self.quotes[line] for line in lines}
            for words_by_line in (self.names, self.paths):
                words.update(*(words_by_line[line] for line in lines))
            self._shown = (edit, lines, tuple(words))
        return self._shown[1:]

    def _list_lines_after(self, edit: Edit | None) -> Sequence[int]:
        if edit is None:
            return range(len(self.names))
        ends = ((0, edit.head), (self.length - edit.tail, self.length))
        numbers: list[int] = []
        line = 0
        for begin, end in edit.pieces or ends:
            while line < len(self.names) and self.starts[line] < begin:
                line += 1
            while line < len(self.names) and self.starts[line + 1] <= end:
                numbers.append(line)
                line += 1
        return numbers

    def select_lines(
        self, lines: Sequence[int], seen: set[str], need: Need, text_price: int, text_tokens: int
    ) -> Excerpt:
        """Select the lines that are worth their price, and add what they show to what was seen.

        Args:
            lines: The lines that are shown now.
            seen: Names and quotes that are shown elsewhere.
            need: What a name, a path and a quote are worth.
            text_price: The price of the whole text. A line pays its share, by characters.
            text_tokens: The tokens of the whole text.
        """
        names, paths, quotes, starts = self.names, self.paths, self.quotes, self.starts
        gap_chars = GAP_TOKENS * self.length // max(1, text_tokens)
        pieces: list[tuple[int, int]] = []
        shown: list[str] = []
        total = 0
        end = -1  # of the newest piece
        before = -2
        for line in lines:
            words = [name for name in names[line] if name not in seen]
            value = need.name * len(words)
            if paths[line]:
                new_paths = [path for path in paths[line] if path not in seen]
                value += need.path * len(new_paths)
                words += new_paths
            quote = quotes[line]
            if quote and quote not in seen:
                value += need.line
                words.append(quote)
            if not value:
                continue
            begin = starts[line]
            chars = starts[line + 1] - begin
            # A line that does not follow a kept one costs the mark of another gap.
            price_chars = chars if end == begin else chars + gap_chars
            if value * self.length < text_price * price_chars:
                continue
            total += value
            seen.update(words)
            shown += words
            if pieces and begin - end <= gap_chars and _are_consecutive(lines, before, line):
                pieces[-1] = (pieces[-1][0], begin + chars)
            else:
                pieces.append((begin, begin + chars))
            end = begin + chars
            before = line
        gaps = len(pieces) + 1 if pieces else 1
        if pieces:
            gaps -= (pieces[0][0] == 0) + (pieces[-1][1] == self.length)
        return Excerpt(pieces=tuple(pieces), gaps=gaps, value=total, shown=shown)


def _are_consecutive(lines: Sequence[int], first: int, last: int) -> bool:
    """Whether all lines from the first to the last are shown now."""
    if isinstance(lines, range):
        return True
    start = bisect_left(lines, first)
    return lines[start + last - first : start + last - first + 1] == [last]


def split_lines(text: str) -> tuple[list[int], list[str]]:
    """Split a text into its lines, and long lines at the ends of JSON values and of sentences.

    Return where each begins, with the end of the last one, and the lines without line ends.
    """
    starts: list[int] = []
    lines: list[str] = []
    at = 0
    for line in text.split("\n"):
        begin = 0
        if len(line) > LONG_LINE_CHARS:
            for match in _UNIT_END.finditer(line, 0, len(line) - MIN_UNIT_CHARS):
                if match.end() - begin >= MIN_UNIT_CHARS:
                    starts.append(at + begin)
                    lines.append(line[begin : match.end()])
                    begin = match.end()
        starts.append(at + begin)
        lines.append(line[begin:])
        at += len(line) + 1
    starts.append(len(text))
    return starts, lines


def list_quotes(text: str) -> list[str]:
    """Return the lines of a text as an edit would quote them: without line numbers and
    indentation."""
    quotes = [line.strip() for line in _LINE_NUMBERS.sub("", text).split("\n")]
    return [line if len(line) >= MIN_QUOTED_CHARS else "" for line in quotes]


def build_result_facts(kind: ToolKind, text: str) -> ResultFacts:
    starts, lines = split_lines(text)
    joined = text if len(lines) == text.count("\n") + 1 else "\n".join(lines)
    is_output = kind in OUTPUT_KINDS

    def counts(word: str) -> bool:
        return len(word) <= MAX_NAME_CHARS and not (is_output and is_mostly_number(word))

    words_by_line = list_identifiers_by_line(joined, counts)
    names = [tuple(dict.fromkeys(words)) for words in words_by_line]
    paths: list[tuple[str, ...]] = [()] * len(names)
    all_paths = {word for word in set[str]().union(*names) if "/" in word}
    for line, words in enumerate(names if all_paths else ()):
        if not all_paths.isdisjoint(words):
            names[line] = tuple(word for word in words if word not in all_paths)
            paths[line] = tuple(word for word in words if word in all_paths)
    return ResultFacts(
        need=NEED_BY_KIND[kind],
        length=max(1, len(text)),
        starts=starts,
        names=names,
        paths=paths,
        quotes=list_quotes(joined),
        name_count=sum(map(len, words_by_line)),
    )


def is_mostly_number(word: str) -> bool:
    """Whether more than three in ten characters of a word are digits."""
    return 10 * sum(map(str.isdigit, word)) > 3 * len(word)


def list_shown_words(message: Message, edited_parts: Iterable[int]) -> frozenset[str]:
    """Return the names and lines that the permanent parts of a message show."""
    edited = set(edited_parts)
    texts: list[str] = []
    for index, part in enumerate(message.parts):
        if index in edited:
            continue
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            texts.append(f"{part.name}\n{join_string_values(part.arguments)}")
    text = "\n".join(texts)
    words = {*count_identifiers(text), *list_quotes(text)}
    words.discard("")
    return frozenset(words)


def classify_tool(tool_name: str, arguments: str) -> ToolKind:
    """Return the kind of a tool, by its name or, for a shell, by the command that it runs."""
    name = tool_name.lower()
    shell = _SHELL_TOOL.search(name) is not None
    if shell:
        command = _LEADING_COMMAND.match(arguments)
        name = command[1].rsplit("/", 1)[-1] if command else ""
    for kind, pattern in _TOOL_KIND_PATTERNS:
        if pattern.fullmatch(name) if shell else pattern.search(name):
            return kind
    return "run" if shell else "other"


@dataclass(slots=True)
class NeedIndex:
    """What is known of the shown results and of the permanent texts."""

    _facts: dict[tuple[int, int], ResultFacts] = field(
        default_factory=dict[tuple[int, int], ResultFacts]
    )
    """By message and part: of shown results."""
    _words: dict[int, tuple[int, frozenset[str]]] = field(
        default_factory=dict[int, tuple[int, frozenset[str]]]
    )
    """By message: the number of its edits, and what its permanent parts show."""
    _summary_words: tuple[str, frozenset[str]] = ("", frozenset())
    """The text of the summary, and its names."""

    def facts_of(self, result: ToolResultView) -> ResultFacts:
        facts = self._facts.get(result.key)
        if facts is None:
            text = extract_editable_text(result.entry.message.parts[result.part])
            kind = classify_tool(result.tool, _call_arguments(result.entry, result.call.id))
            facts = self._facts[result.key] = build_result_facts(kind, text)
        return facts

    def collect_permanent_words(self, plan: Plan) -> set[str]:
        """Return all names and lines that are shown outside results."""
        shown: dict[int, tuple[int, frozenset[str]]] = {}
        for group in plan.visible_groups():
            for entry in group.entries():
                known = self._words.get(entry.seq)
                if known is None or known[0] != len(entry.edits):
                    words = list_shown_words(entry.message, entry.edits)
                    known = (len(entry.edits), words)
                shown[entry.seq] = known
        self._words = shown
        words = set[str]().union(*(words for _, words in shown.values()))
        text = plan.window.summary.text if plan.window.summary is not None else ""
        if text != self._summary_words[0]:
            self._summary_words = (text, frozenset(count_identifiers(text)))
        words.update(self._summary_words[1])
        return words

    def forget_hidden(self, window: Window) -> None:
        """Forget results that are not shown any more."""
        if len(self._facts) > len(window.results):
            self._facts = {
                key: facts for key, facts in self._facts.items() if key in window.results
            }


def get_need_index(window: Window) -> NeedIndex:
    """Return the window's index. Everything in it can be computed again from the log."""
    cached = window.conversation.derived_cache.get("needs")
    index = cached if isinstance(cached, NeedIndex) else NeedIndex()
    window.conversation.derived_cache["needs"] = index
    index.forget_hidden(window)
    return index


@dataclass(slots=True)
class ResultValues:
    """What results are worth at a price."""

    cuts: list[LineCut] = field(default_factory=list[LineCut])
    """The results with lines that are not worth the price, oldest first."""
    unmeasured: dict[tuple[int, int], ToolResultView] = field(
        default_factory=dict[tuple[int, int], ToolResultView]
    )
    """The results whose need cannot be measured, also those that must stay."""
    worth: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """By result: what a million of the tokens that stay is worth, in needs."""

    @property
    def freed_tokens(self) -> int:
        """Estimated tokens that all cuts free."""
        return sum(cut.freed_tokens for cut in self.cuts)


def value_results(plan: Plan, candidates: Collection[ToolResultView], price: int) -> ResultValues:
    """Find the lines of results that are not worth their price.

    Results are read from the newest to the oldest, so that of two equal lines the newer one counts.

    Args:
        plan: The plan.
        candidates: The results of which lines may be hidden.
        price: The price of a million tokens, in needs.
    """
    window = plan.window
    index = get_need_index(window)
    seen = index.collect_permanent_words(plan)
    keys = {result.key for result in candidates}
    values = ResultValues()
    for result in reversed(window.results.values()):
        facts = index.facts_of(result)
        lines, words = facts.list_shown_lines(result.edit)
        total_tokens = result.entry.sizes[result.part].tokens
        is_small = result.size.tokens <= PLACEHOLDER_TOKENS
        is_measured = facts.name_count * TOKENS_PER_MEASURED_NAME >= total_tokens
        if not (is_small or is_measured):
            values.unmeasured[result.key] = result
        if is_small or not is_measured or result.key not in keys or not lines:
            seen.update(words)
            continue
        age = len(window.conversation.groups) - result.entry.round.group.index
        need = Need(*(n * HALF_LIFE_ROUNDS // (HALF_LIFE_ROUNDS + age) for n in facts.need))
        excerpt = facts.select_lines(lines, seen, need, price * total_tokens, total_tokens)
        cut = _build_cut(result, facts, excerpt, price)
        if cut.freed_tokens < max(MIN_CUT_TOKENS, cut.tokens // MIN_CUT_DIVISOR):
            seen.update(words)
            values.worth[result.key] = excerpt.value // cut.tokens
            continue
        values.cuts.append(cut)
        if cut.pieces:
            values.worth[result.key] = excerpt.value // max(1, cut.tokens - cut.freed_tokens)
        else:
            seen.difference_update(excerpt.shown)
    values.cuts.reverse()
    return values


def value_at_raised_price(
    plan: Plan, candidates: Collection[ToolResultView], price: int, freed_tokens: int
) -> ResultValues:
    """Value results at the lowest price, to about a quarter, at which the cuts free so many tokens;
    at `MAX_RAISED_PRICE` if no price is enough."""
    low = price
    high = max(price, MAX_RAISED_PRICE)
    values = value_results(plan, candidates, high)
    while values.freed_tokens >= freed_tokens and 4 * high > 5 * low:
        middle = isqrt(low * high)
        values_at_middle = value_results(plan, candidates, middle)
        if values_at_middle.freed_tokens >= freed_tokens:
            values = values_at_middle
            high = middle
        else:
            low = middle
    return values


def _build_cut(result: ToolResultView, facts: ResultFacts, excerpt: Excerpt, price: int) -> LineCut:
    """Return the cut to an excerpt, or to nothing if header and gaps cost more than it is worth."""
    pieces = excerpt.pieces
    size = result.entry.sizes[result.part].tokens
    chars = sum(end - begin for begin, end in pieces)
    kept_tokens = chars * size // facts.length + HEADER_TOKENS + GAP_TOKENS * excerpt.gaps
    if excerpt.value < price * kept_tokens:
        pieces, kept_tokens = (), HEADER_TOKENS
    tokens = result.size.tokens
    is_the_same = result.edit is not None and pieces == result.edit.pieces
    return LineCut(
        result=result,
        pieces=pieces,
        tokens=tokens,
        freed_tokens=0 if is_the_same else tokens - kept_tokens,
    )


def _call_arguments(entry: Entry, call_id: str) -> str:
    for other in entry.round.entries:
        for call in other.message.calls:
            if call.id == call_id:
                return join_string_values(call.arguments)
    return ""
