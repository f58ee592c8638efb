"""How a conversation holds together: entries in rounds, rounds in groups.

An *entry* is one message of the log. A *round* is a message of its own, or an assistant's calls
with all their results and whatever was said while they were open. A *group* is what is hidden
whole: one round, or all rounds of a tool loop that carries signed thinking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.core.event import Edit, Size
from trimtab.core.message import Message, Opaque


@dataclass(slots=True)
class Entry:
    seq: int
    """Position of the message's event in the log."""
    message: Message
    """What was said, whole."""
    sizes: tuple[Size, ...]
    """Of each part as it was said."""
    round: Round
    """The round it stands in."""
    edits: dict[int, Edit] = field(default_factory=dict[int, Edit])
    """By part index: the truncate or mask that the part is seen under."""
    notes: tuple[int, ...] = ()
    """Indexes of results that answer no open call; they are shown as text."""
    pinned: bool = False
    """True keeps its group from being hidden by any policy."""
    repair: bool = False
    """True for a result that nobody gave: it stands in for one that never came."""

    def shown(self, part: int) -> Size:
        """The part's size as the model sees it."""
        edit = self.edits.get(part)
        return self.sizes[part] if edit is None else edit.size

    @property
    def bytes(self) -> int:
        """Of all parts as the model sees them."""
        return sum(self.shown(i).bytes for i in range(len(self.sizes)))

    @property
    def tokens(self) -> int:
        """Of all parts as the model sees them."""
        return sum(self.shown(i).tokens for i in range(len(self.sizes)))


@dataclass(slots=True)
class Pairing:
    """A tool call and, once it is there, its result."""

    id: str
    """The id as the provider gave it; it may stand for another call elsewhere in the log."""
    wire_id: str
    """The id as it is sent: unique in the session."""
    name: str
    """The tool's name."""
    result: Result | None = None
    """What answers it."""


@dataclass(slots=True)
class Result:
    """One tool result, as policies see it."""

    entry: Entry
    """The message that carries it."""
    part: int
    """Its index there."""
    tool: str
    """The name of the tool that gave it."""
    call: Pairing
    """The call it answers."""

    @property
    def seq(self) -> int:
        return self.entry.seq

    @property
    def key(self) -> tuple[int, int]:
        return (self.entry.seq, self.part)

    @property
    def handle(self) -> str:
        """By what its whole text is recalled."""
        return f"m{self.entry.seq}.{self.part}"

    @property
    def size(self) -> Size:
        """As the model sees it now."""
        return self.entry.shown(self.part)

    @property
    def edited(self) -> Edit | None:
        """The truncate or mask it is seen under."""
        return self.entry.edits.get(self.part)


@dataclass(slots=True)
class Round:
    group: Group
    """The group it is hidden with."""
    entries: list[Entry] = field(default_factory=list[Entry])
    """In the order of the log."""
    calls: list[Pairing] = field(default_factory=list[Pairing])
    """In the order the assistant made them."""
    waiting: int = 0
    """Calls without a result."""
    rendered: Any = None
    """What the prompt keeps of its last rendering; cleared by whatever changes the round."""

    def take(self, call_id: str) -> Pairing | None:
        """The first call of that id that still waits."""
        if self.waiting:
            for pairing in self.calls:
                if pairing.result is None and pairing.id == call_id:
                    return pairing
        return None


@dataclass(slots=True)
class Group:
    index: int
    """Its place among all groups of the session."""
    rounds: list[Round] = field(default_factory=list[Round])
    """At least one."""
    bytes: int = 0
    """Of its messages as the model sees them, were it not hidden."""
    tokens: int = 0
    """Of its messages as the model sees them, were it not hidden."""
    messages: int = 0
    """How many it holds."""
    thinking: bool = False
    """True where it holds signed thinking, so that its rounds stand or fall together."""
    pinned: int = 0
    """How many of its messages are pinned."""
    hidden: Edit | None = None
    """The drop or summary that hides it."""

    @property
    def first(self) -> int:
        """Position of its first message."""
        return self.rounds[0].entries[0].seq

    @property
    def last(self) -> int:
        """Position of its last message."""
        return self.rounds[-1].entries[-1].seq

    def entries(self) -> Iterator[Entry]:
        for round in self.rounds:
            yield from round.entries

    def results(self) -> Iterator[Result]:
        for round in self.rounds:
            for pairing in round.calls:
                if pairing.result is not None:
                    yield pairing.result


def has_thinking(message: Message) -> bool:
    return any(type(part) is Opaque and part.thinking for part in message.parts)
