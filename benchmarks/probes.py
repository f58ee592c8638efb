"""Facts that a recorded conversation states once and needs much later, found without a model.

A conversation is cut in its middle: what stands before the ten newest messages is summarised, the
rest goes on. A *fact* is an identifier or a path (`text/identifiers.py`), a number of three digits
or more, or a quoted string of more than one word. It makes a *probe* where

- exactly one message before the middle holds it, and that is one of the summarised,
- the first to mention it after the middle is the assistant: whoever is told a fact again, by the
  user or by a tool, need not remember it,
- no conversation of another project holds it: what others say, too, is general knowledge.

A probe's *use* is `argument` where it stands in a string of at most 200 characters that a tool was
called with, such as a path, an id or a command; `body` where it stands in a longer one, mostly code
that is written; `text` where the assistant says it. Quoted strings in bodies are left out: those
are the literals of code.

`question` is what a search is asked with: the twelve words before the use and the six behind it, in
the message that uses the fact, names and arguments of its calls in their order; where fewer words
precede, the last words of the nearest earlier text complete them. The fact and the words that it is
made of are left out. `stated` is the same, of the place where the fact was first stated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.recall.search import split_query_words
from trimtab.engine.text.identifiers import count_identifiers
from trimtab.replay.needs import find_quoted_strings
from trimtab.replay.selection import RecordedConversation

KEPT = 10
"""Newest messages that a summary leaves alone."""
LEAST = 5
"""Messages that a summary must cover."""
BEFORE, BEHIND = 12, 6
"""Words of a question around the use."""
POINTED = 200
"""Characters of an argument that names something instead of carrying a text."""
LONGEST = 120
"""Characters of a fact."""

Kind = Literal["path", "identifier", "number", "quote"]
Use = Literal["argument", "body", "text"]
_NUMBER = re.compile(r"(?<![\w.])\$?\d[\d.,:/-]*\d(?!\w)")
_SAID = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One fact, where it was stated and where it was needed."""

    fact: str
    """To the letter."""
    kind: Kind
    """What it is by its form."""
    use: Use
    """How it was needed."""
    stated_at: int
    """Index of the one message before the middle that holds it."""
    used_at: int
    """Index of the message that needs it."""
    question: str
    """What a search is asked with: the words around the use."""
    stated: str
    """The words around the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One conversation, cut where it is summarised."""

    id: str
    """Of the conversation."""
    covered: tuple[Message, ...]
    """The messages that a summary replaces."""
    kept: tuple[Message, ...]
    """The newest messages before the middle, which stay."""
    probes: tuple[Probe, ...]
    """What is needed of the covered messages later."""


def cases(conversations: Iterable[RecordedConversation]) -> list[Case]:
    """Every conversation with a probe."""
    found: list[tuple[RecordedConversation, int, int, list[Probe]]] = []
    holders: dict[str, set[str]] = {}
    for conversation in conversations:
        texts = [_told(message) for message in conversation.messages]
        facts = [facts_in(text) for text in texts]
        for fact in set().union(*facts):
            holders.setdefault(fact, set()).add(_project(conversation))
        middle, cut = _cut(conversation.messages)
        if cut >= LEAST:
            probes = list(_probes(conversation.messages, texts, facts, middle, cut))
            found.append((conversation, middle, cut, probes))
    made: list[Case] = []
    for conversation, middle, cut, probes in found:
        if own := [probe for probe in probes if len(holders[probe.fact]) == 1]:
            said = conversation.messages
            covered, kept = tuple(said[:cut]), tuple(said[cut:middle])
            made.append(Case(id=conversation.id, covered=covered, kept=kept, probes=tuple(own)))
    return made


def facts_in(text: str) -> dict[str, Kind]:
    """The facts of a text, each once."""
    found: dict[str, Kind] = {
        word: "path" if "/" in word else "identifier"
        for word in count_identifiers(text)
        if len(word) <= LONGEST
    }
    for number in _NUMBER.findall(text):
        if sum(letter.isdigit() for letter in number) >= 3 and len(number) >= 4:
            found.setdefault(number, "number")
    for quote in find_quoted_strings(text):
        if " " in quote:
            found.setdefault(quote, "quote")
    return found


def _cut(messages: Sequence[Message]) -> tuple[int, int]:
    """The middle, and the first message before it that is kept; no pair of call and result torn."""
    middle = len(messages) // 2
    while middle < len(messages) and messages[middle].role == "tool":
        middle += 1
    cut = middle - KEPT
    while cut > 0 and messages[cut].role == "tool":
        cut -= 1
    return middle, cut


def _probes(
    messages: Sequence[Message],
    texts: Sequence[str],
    facts: Sequence[Mapping[str, Kind]],
    middle: int,
    cut: int,
) -> Iterator[Probe]:
    before: dict[str, list[int]] = {}
    for index in range(middle):
        for fact in facts[index]:
            before.setdefault(fact, []).append(index)
    met: set[str] = set()
    for index in range(middle, len(messages)):
        for fact, kind in facts[index].items():
            if fact in met:
                continue
            met.add(fact)
            held = before.get(fact, ())
            if messages[index].role != "assistant" or len(held) != 1 or held[0] >= cut:
                continue
            # A longer word may hold it, too: then it was said more than once.
            if sum(fact in text for text in texts[:index]) != 1:
                continue
            use = _use(messages[index], fact)
            if kind == "quote" and use == "body":
                continue
            yield Probe(
                fact=fact,
                kind=kind,
                use=use,
                stated_at=held[0],
                used_at=index,
                question=_around(messages, index, fact),
                stated=_around(messages, held[0], fact),
            )


def _use(message: Message, fact: str) -> Use:
    inside = [
        text
        for call in message.calls
        for text in _leaves(_arguments(call), keys=False)
        if fact in text
    ]
    if not inside:
        return "text"
    return "argument" if min(map(len, inside)) <= POINTED else "body"


def _around(messages: Sequence[Message], index: int, fact: str) -> str:
    text = _told(messages[index], keys=True)
    before, _, behind = text.partition(fact)
    own = set(split_query_words(fact))

    def said(some: str) -> list[str]:
        return [word for word in _SAID.findall(some) if word.lower() not in own]

    first = said(before)[-BEFORE:]
    if len(first) < BEFORE:
        earlier = (m.text for m in reversed(messages[:index]) if m.role != "tool" and m.text)
        first = [*said(next(earlier, ""))[len(first) - BEFORE :], *first]
    return " ".join([*first, *said(behind)[:BEHIND]])


def _told(message: Message, *, keys: bool = False) -> str:
    told: list[str] = []
    for part in message.parts:
        match part:
            case Text() | ToolResult():
                told.append(part.text)
            case ToolCall():
                told += [part.name, *_leaves(_arguments(part), keys=keys)]
            case _:
                pass
    return "\n".join(told)


def told(messages: Iterable[Message]) -> str:
    """All that messages say, as a plain text."""
    return "\n".join(_told(message) for message in messages)


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


def _leaves(value: Any, *, keys: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            if keys:
                yield key
            yield from _leaves(inner, keys=keys)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _leaves(inner, keys=keys)
    elif isinstance(value, str) or keys:
        yield str(value)


def _project(conversation: RecordedConversation) -> str:
    """What a conversation is about: the repository, or the benchmark, it was recorded from."""
    return re.split("[@:]", conversation.source)[0]
