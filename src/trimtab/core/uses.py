"""Which results the agent keeps coming back to: an index over words, kept call by call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from trimtab.core.message import Message, Text, ToolCall, ToolResult
from trimtab.core.rounds import Entry
from trimtab.core.window import Window
from trimtab.core.words import strings, words

Kind = Literal["edit", "read", "search", "run", "other"]

_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("edit", re.compile(r"edit|write|patch|replace|create|update|insert")),
    ("read", re.compile(r"read|view|open|fetch|\b(?:cat|sed|head|tail|nl|less|bat)\b")),
    ("search", re.compile(r"grep|search|find|glob|list|\b(?:rg|ls|fd|ag|tree)\b")),
)
_RUN = re.compile(r"bash|shell|exec|run|terminal|command")
_LEADING = re.compile(r"^(?:bash\s+-lc\s+)?(?:cd [^&;]+&&\s*)*\s*([\w./-]+)")
# Each begins where nothing of its kind stands before it, so that a long run is read once.
_PATH = re.compile(r"(?<![\w$.-])[\w$.-]*(?:/[\w$.-]+)+|(?<![\w-])[\w-]+\.[a-z]{1,4}\b")
PATHS = 4
"""Of one call that are followed."""


@dataclass(slots=True)
class Fact:
    """What is known of one result."""

    kind: Kind
    """What sort of tool gave it."""
    arrived: int
    """Assistant messages before it."""
    words: dict[str, int]
    """Its words, in order of appearance, with how often each occurs."""
    paths: tuple[str, ...]
    """That its call named."""
    used: int
    """Assistant messages up to the last that named one of its words."""
    uses: int = 0
    """How often its words were named since."""
    superseded: bool = False
    """The same tool was asked for the same thing again."""


@dataclass(slots=True)
class Uses:
    calls: int = 0
    """Assistant messages so far."""
    facts: dict[tuple[int, int], Fact] = field(default_factory=dict[tuple[int, int], Fact])
    """By result."""
    named: dict[str, int] = field(default_factory=dict[str, int])
    """By path: assistant messages up to the last call that named it."""
    edited: dict[str, int] = field(default_factory=dict[str, int])
    """By path: assistant messages up to the last call that changed it."""
    _holders: dict[str, list[Fact]] = field(default_factory=dict[str, list[Fact]])
    """By word: the results that hold it."""
    _subjects: dict[tuple[str, str], Fact] = field(default_factory=dict[tuple[str, str], Fact])
    """By tool and what it was asked for: the newest result."""
    _seen: int = 0
    """The position up to which it has listened."""

    def catch_up(self, window: Window) -> None:
        """Take in what was said since the last time."""
        fresh: list[Entry] = []
        for entry in reversed(window.entries.values()):
            if entry.seq <= self._seen:
                break
            fresh.append(entry)
        for entry in reversed(fresh):
            self._hear(entry)
        self._seen = window.seq
        if len(self.facts) > 2 * len(window.results) + 100:
            self._forget(window)

    def _hear(self, entry: Entry) -> None:
        message = entry.message
        for pairing in entry.round.calls:
            result = pairing.result
            if result is not None and result.entry is entry:
                self._receive(result.key, message, pairing.name, _arguments(entry, pairing.id))
        if message.role == "assistant":
            self.calls += 1
        if not message.results:
            self._mention(message)

    def _receive(self, key: tuple[int, int], message: Message, tool: str, asked: str) -> None:
        part = message.parts[key[1]]
        text = part.text if isinstance(part, ToolResult) else ""
        paths = tuple(_PATH.findall(asked)[:PATHS])
        fact = Fact(
            kind=kind_of(tool, asked),
            arrived=self.calls,
            words=words(text),
            paths=paths,
            used=self.calls,
        )
        self.facts[key] = fact
        subject = (tool, "\n".join(sorted(paths)) or asked[:200])
        if (earlier := self._subjects.get(subject)) is not None:
            earlier.superseded = True
        self._subjects[subject] = fact
        for word in fact.words:
            self._holders.setdefault(word, []).append(fact)

    def _mention(self, message: Message) -> None:
        said: list[str] = []
        for part in message.parts:
            if isinstance(part, Text):
                said.append(part.text)
            elif isinstance(part, ToolCall):
                asked = strings(part.arguments)
                said.append(asked)
                for path in _PATH.findall(asked)[:PATHS]:
                    self.named[path] = self.calls
                    if kind_of(part.name, asked) == "edit":
                        self.edited[path] = self.calls
        for word in words("\n".join(said)):
            for fact in self._holders.get(word, ()):
                fact.used = self.calls
                fact.uses += 1

    def _forget(self, window: Window) -> None:
        """Only visible results can be hidden: the index keeps no others."""
        self.facts = {key: fact for key, fact in self.facts.items() if key in window.results}
        self._holders = {}
        for fact in self.facts.values():
            for word in fact.words:
                self._holders.setdefault(word, []).append(fact)


def uses_of(window: Window) -> Uses:
    """The window's index, up to date. It is made at the first question, from the log alone."""
    found = window.memo.get("uses")
    uses = found if isinstance(found, Uses) else Uses()
    window.memo["uses"] = uses
    uses.catch_up(window)
    return uses


def kind_of(tool: str, asked: str) -> Kind:
    """What sort of tool it is, by its name or, for a shell, by the command it runs."""
    name = tool.lower()
    shell = _RUN.search(name) is not None
    if shell:
        command = _LEADING.match(asked)
        name = command[1].rsplit("/", 1)[-1] if command else ""
    for kind, told in _KINDS:
        if told.fullmatch(name) if shell else told.search(name):
            return kind
    return "run" if shell else "other"


def _arguments(entry: Entry, call_id: str) -> str:
    for other in entry.round.entries:
        for call in other.message.calls:
            if call.id == call_id:
                return strings(call.arguments)
    return ""
