"""Find what a reply needs from earlier messages, and whether the request still shows it.

The arguments of a reply's tool calls name three needs. Each is something that the agent took from
an earlier message, so that it can be looked for in what was sent:

- A *reference* is an identifier, path or quoted string that an earlier message contains. It is
  *far* if it was last mentioned more than ten messages before, and *tool-only* if only tool results
  ever contained it. `text/identifiers.py` defines identifiers and paths. Quoted strings have 4 to
  80 characters on one line.
- A *quoting edit* replaces an old text that it quotes, and earlier messages contain all lines of
  it. A client refuses the edit if the quote is wrong. It is *hidden* if the request does not show
  one of these lines. Line numbers and indentation do not count, and lines of less than six
  characters prove nothing.
- A *far 4-gram* is four consecutive words or signs that an earlier message contains, last seen more
  than ten messages before: what the agent copies instead of naming it.

A need is *visible* if a message, as sent in that call, still contains it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from trimtab.engine.log.message import Message, Part, Text, ToolCall, ToolResult
from trimtab.engine.summaries.extract import NAMES_LINE_PREFIX
from trimtab.engine.text.identifiers import (
    count_identifiers,
    join_string_values,
    list_string_values,
)

FAR_MESSAGES = 10
"""A need is far if it was last mentioned more than this many messages before."""
GRAM_WORDS = 4
"""Words or signs in a row that count as copied."""
MIN_QUOTED_LINE_CHARS = 6
"""Characters from which on a line of a quote is looked for. Shorter ones are everywhere."""

_QUOTED = re.compile(r"\"([^\"\n]{4,80})\"|'([^'\n]{4,80})'|`([^`\n]{4,80})`")
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_LINE_NUMBER = re.compile(r"^\s*\d+[→\t:|-]")
"""What tools write before a line of a file."""
_OLD_TEXT_KEYS = ("old_string", "oldString", "old_str", "oldText", "oldContent")
"""Arguments with a text that an edit replaces, as coding agents name them."""
_PATCH_START = "*** Begin Patch"
_LISTED_NAMES = re.compile(
    rf'words from its text: "[^"\n]*"|^{re.escape(NAMES_LINE_PREFIX)}.*$', re.MULTILINE
)
"""The lists of names that Trimtab itself writes: in placeholders, and at the end of a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReference:
    """One reference of one call."""

    text: str
    """The text that the call contains."""
    sources: tuple[int, ...]
    """Indexes of the earlier messages that contain it, oldest first."""
    far: bool
    """Whether it was last mentioned more than ten messages before."""
    tool_only: bool
    """Whether only tool results contained it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNeeds:
    """What the tool calls of one reply need from earlier messages."""

    references: tuple[EarlierReference, ...] = ()
    """What they name."""
    quoting_edits: tuple[dict[str, tuple[int, ...]], ...] = ()
    """For each edit, the quoted lines with the indexes of the messages that contain them."""
    far_grams: dict[tuple[int, ...], frozenset[str]] = field(
        default_factory=dict[tuple[int, ...], frozenset[str]]
    )
    """The far 4-grams by the indexes of the messages that contain them."""


NO_NEEDS = CallNeeds()


def find_needs(messages: Sequence[Message]) -> dict[int, CallNeeds]:
    """Return the needs of each assistant message with tool calls, by message index."""
    arguments = {
        index: "\n".join(join_string_values(call.arguments) for call in message.calls)
        for index, message in enumerate(messages)
        if message.calls
    }
    texts = [join_message_text(message) for message in messages]
    references = _find_references(messages, texts, arguments)
    quotes = {
        index: [lines for call in messages[index].calls for lines in _list_quotes(call.arguments)]
        for index in arguments
    }
    quoted_lines = {line for own in quotes.values() for lines in own for line in lines}
    line_holders = _find_holders(texts, quoted_lines, read_lines)
    grams = {index: set(read_grams(text)) for index, text in arguments.items()}
    copied_grams = {gram for own in grams.values() for gram in own}
    gram_holders = _find_holders(texts, copied_grams, read_grams)
    return {
        index: CallNeeds(
            references=references[index],
            quoting_edits=_find_quoting_edits(quotes[index], line_holders, index),
            far_grams=_find_far_grams(grams[index], gram_holders, index),
        )
        for index in arguments
    }


def _find_references(
    messages: Sequence[Message], texts: Sequence[str], arguments: Mapping[int, str]
) -> dict[int, tuple[EarlierReference, ...]]:
    holders: dict[str, list[int]] = {}
    quote_holders: dict[str, tuple[list[int], int]] = {}  # up to which message it was looked for
    references: dict[int, tuple[EarlierReference, ...]] = {}
    for index, text in enumerate(texts):
        if index in arguments:
            named = arguments[index]
            words = [word for word in sorted(count_identifiers(named)) if word in holders]
            sources_by_name = {word: tuple(holders[word]) for word in words}
            for quote in sorted(find_quoted_strings(named) - sources_by_name.keys()):
                earlier, end = quote_holders.get(quote, ([], 0))
                earlier += [i for i in range(end, index) if quote in texts[i]]
                quote_holders[quote] = earlier, index
                if earlier:
                    sources_by_name[quote] = tuple(earlier)
            references[index] = tuple(
                EarlierReference(
                    text=name,
                    sources=sources,
                    far=_is_far(sources, index),
                    tool_only=all(messages[source].results for source in sources),
                )
                for name, sources in sources_by_name.items()
            )
        for word in count_identifiers(text):
            holders.setdefault(word, []).append(index)
    return references


def find_quoted_strings(text: str) -> set[str]:
    """Return the quoted strings of a text."""
    return {match[match.lastindex or 0].strip() for match in _QUOTED.finditer(text)}


def _find_quoting_edits(
    quotes: Sequence[Sequence[str]], holders: Mapping[str, Sequence[int]], index: int
) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Return the quotes of which every line can be read before a message."""
    edits = ({line: _list_earlier(holders, line, index) for line in lines} for lines in quotes)
    return tuple(sources_by_line for sources_by_line in edits if all(sources_by_line.values()))


def _find_far_grams(
    grams: Iterable[str], holders: Mapping[str, Sequence[int]], index: int
) -> dict[tuple[int, ...], frozenset[str]]:
    grams_by_sources: dict[tuple[int, ...], set[str]] = {}
    for gram in grams:
        sources = _list_earlier(holders, gram, index)
        if sources and _is_far(sources, index):
            grams_by_sources.setdefault(sources, set()).add(gram)
    return {sources: frozenset(copied) for sources, copied in grams_by_sources.items()}


def _find_holders(
    texts: Sequence[str], wanted: set[str], read_items: Callable[[str], Iterable[str]]
) -> dict[str, list[int]]:
    """Return the indexes of the texts that contain each wanted item."""
    holders: dict[str, list[int]] = {}
    if wanted:
        for index, text in enumerate(texts):
            for item in wanted.intersection(read_items(text)):
                holders.setdefault(item, []).append(index)
    return holders


def _list_earlier(holders: Mapping[str, Sequence[int]], item: str, index: int) -> tuple[int, ...]:
    indexes = holders.get(item, ())
    return tuple(indexes[: bisect_left(indexes, index)])


def _is_far(sources: Sequence[int], index: int) -> bool:
    return index - sources[-1] > FAR_MESSAGES


def read_lines(text: str) -> Iterator[str]:
    """Return the lines of a text by which a quote is found."""
    for line in text.split("\n"):
        plain_line = _LINE_NUMBER.sub("", line).strip()
        if len(plain_line) >= MIN_QUOTED_LINE_CHARS:
            yield plain_line


def read_grams(text: str) -> Iterator[str]:
    """Return the 4-grams of a text, with a space between their words."""
    words = _WORD_OR_SIGN.findall(text)
    return map(" ".join, zip(*(words[start:] for start in range(GRAM_WORDS)), strict=False))


def _list_quotes(arguments_json: str) -> list[list[str]]:
    """Return the lines of each old text that a call quotes to replace it."""
    old_texts: list[str] = []
    try:
        arguments = json.loads(arguments_json)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        fields = cast("dict[str, Any]", arguments)
        edits = fields.get("edits")
        for owner in (fields, *(cast("list[Any]", edits) if isinstance(edits, list) else ())):
            if isinstance(owner, dict):
                values = (cast("dict[str, Any]", owner).get(key) for key in _OLD_TEXT_KEYS)
                old_texts += [value for value in values if isinstance(value, str)]
    for value in list_string_values(arguments_json):
        old_texts += _list_patched_texts(value)
    quotes = [list(read_lines(old_text)) for old_text in old_texts]
    return [lines for lines in quotes if lines]


def _list_patched_texts(text: str) -> list[str]:
    """Return the old text of each hunk of a patch: its context, and the lines that it removes."""
    _, start, patch = text.partition(_PATCH_START)
    if not start:
        return []
    hunks: list[list[str]] = [[]]
    for line in patch.split("\n"):
        if line.startswith(("@@", "***")):
            hunks.append([])
        elif line[:1] in ("-", " "):
            hunks[-1].append(line[1:])
    return ["\n".join(lines) for lines in hunks]


def join_message_text(message: Message) -> str:
    """Return what the model reads in a message, with the arguments of calls as plain values."""
    return "\n".join(text for part in message.parts if (text := _part_text(part)) is not None)


def _part_text(part: Part) -> str | None:
    match part:
        case Text() | ToolResult():
            return part.text
        case ToolCall():
            return f"{part.name} {join_string_values(part.arguments)}"
        case _:
            return None


class ShownText:
    """A text of a request that differs from the message that it stands for."""

    def __init__(self, text: str) -> None:
        self.text = text
        """The text as sent."""

    @cached_property
    def text_without_lists(self) -> str:
        """The text without our lists of names from what is hidden: they show no need."""
        return _LISTED_NAMES.sub("", self.text)

    @cached_property
    def lines(self) -> frozenset[str]:
        return frozenset(read_lines(self.text_without_lists))

    @cached_property
    def grams(self) -> frozenset[str]:
        return frozenset(read_grams(self.text_without_lists))


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedCounts:
    """How many needs there are, and how many of them the requests show."""

    references: int = 0
    """Number of references."""
    seen: int = 0
    """Number of visible references. Names that only a list of names shows, in a placeholder or at
    the end of a summary, do not count."""
    listed: int = 0
    """Number of references that only a list of names shows."""
    far: int = 0
    """Number of references last mentioned more than ten messages before."""
    far_seen: int = 0
    """Number of visible far references."""
    far_listed: int = 0
    """Number of far references that only a list of names shows."""
    tool: int = 0
    """Number of references that only tool results ever contained."""
    tool_seen: int = 0
    """Number of visible tool-only references."""
    tool_listed: int = 0
    """Number of tool-only references that only a list of names shows."""
    quoting_edits: int = 0
    """Number of edits whose quoted old text earlier messages contain."""
    hidden_edits: int = 0
    """Number of these edits whose quoted text cannot be read in the request."""
    far_4grams: int = 0
    """Number of 4-grams last seen more than ten messages before."""
    far_4grams_seen: int = 0
    """Number of visible far 4-grams."""

    @property
    def shows_every_reference(self) -> bool:
        return self.seen == self.references


def sum_need_counts(counts: Iterable[NeedCounts]) -> NeedCounts:
    """Add up the needs of several calls."""
    total: Counter[str] = Counter()
    for call_counts in counts:
        total.update({name: getattr(call_counts, name) for name in call_counts.__slots__})
    return NeedCounts(**total)


def count_needs(
    needs: CallNeeds,
    is_whole: Callable[[int], bool],
    list_changed: Callable[[Sequence[int]], Sequence[ShownText]],
) -> tuple[NeedCounts, set[int]]:
    """Count the needs of a call that its request shows.

    Args:
        needs: The needs.
        is_whole: Returns whether the message with this index is sent as it was written.
        list_changed: Returns the texts that are sent instead of any of these messages.

    Returns:
        The counts. For each reference that is not visible, also the index of the newest message
        that contains it.
    """
    counts: Counter[str] = Counter()
    lost: set[int] = set()
    for reference in needs.references:
        name, sources = reference.text, reference.sources
        is_seen = is_shown = any(map(is_whole, reversed(sources)))
        if not is_seen:
            changed = list_changed(sources)
            is_shown = any(name in shown.text for shown in changed)
            is_seen = is_shown and any(name in shown.text_without_lists for shown in changed)
        if not is_seen:
            lost.add(sources[-1])
        counts.update(
            references=1,
            seen=is_seen,
            listed=is_shown and not is_seen,
            far=reference.far,
            far_seen=reference.far and is_seen,
            far_listed=reference.far and is_shown and not is_seen,
            tool=reference.tool_only,
            tool_seen=reference.tool_only and is_seen,
            tool_listed=reference.tool_only and is_shown and not is_seen,
        )
    for sources_by_line in needs.quoting_edits:
        is_readable = all(
            any(map(is_whole, reversed(sources)))
            or any(line in shown.lines for shown in list_changed(sources))
            for line, sources in sources_by_line.items()
        )
        counts.update(quoting_edits=1, hidden_edits=not is_readable)
    for sources, grams in needs.far_grams.items():
        visible_grams: frozenset[str] | set[str] = grams
        if not any(map(is_whole, reversed(sources))):
            changed = list_changed(sources)
            visible_grams = {gram for shown in changed for gram in grams & shown.grams}
        counts.update(far_4grams=len(grams), far_4grams_seen=len(visible_grams))
    return NeedCounts(**{name: int(count) for name, count in counts.items()}), lost
