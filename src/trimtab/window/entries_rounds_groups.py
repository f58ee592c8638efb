"""How a conversation holds together: entries in rounds, rounds in groups.

An *entry* is one message of the log. A *round* is a message of its own, or an assistant's calls
with all their results and whatever was said while they were open. A *group* is what is hidden
whole: one round, a round with signed thinking and those after it that have none of their own, or
a reply that its provider paused and what it went on with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Any

from trimtab.log.event import Edit, Size
from trimtab.log.message import MODEL_FAMILY_KEY, Message, OpaqueBlock, ToolCall, ToolResult


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
    edited_by: dict[int, int] = field(default_factory=dict[int, int])
    """By part index: the position of that edit's event."""
    unpaired_results: tuple[int, ...] = ()
    """Indexes of results that answer no open call; they are shown as text."""
    pinned: bool = False
    """True keeps its group from being hidden by any policy."""
    revealed: int = 0
    """The position of the newest event that asked for it to be seen again."""
    is_repair: bool = False
    """True for a result that nobody gave: it stands in for one that never came."""
    paused: bool = False
    """True for a reply that goes on in the next one."""
    at: float = 0.0
    """When it was said, in seconds since the epoch."""

    def shown_size(self, part: int) -> Size:
        """The part's size as the model sees it."""
        edit = self.edits.get(part)
        return self.sizes[part] if edit is None else edit.size

    @property
    def bytes(self) -> int:
        """Of all parts as the model sees them."""
        return sum(self.shown_size(i).bytes for i in range(len(self.sizes)))

    @property
    def tokens(self) -> int:
        """Of all parts as the model sees them."""
        return sum(self.shown_size(i).tokens for i in range(len(self.sizes)))


@dataclass(slots=True)
class CallResultPair:
    """A tool call and, once it is there, its result."""

    id: str
    """The id as the provider gave it; it may stand for another call elsewhere in the log."""
    wire_id: str
    """The id as it is sent: unique in the session."""
    name: str
    """The tool's name."""
    result: ToolResultView | None = None
    """What answers it."""


@dataclass(slots=True)
class ToolResultView:
    """One tool result, as policies see it."""

    entry: Entry
    """The message that carries it."""
    part: int
    """Its index there."""
    tool: str
    """The name of the tool that gave it."""
    call: CallResultPair
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
        return self.entry.shown_size(self.part)

    @property
    def edit(self) -> Edit | None:
        """The truncate or mask it is seen under."""
        return self.entry.edits.get(self.part)


@dataclass(slots=True)
class Round:
    group: Group
    """The group it is hidden with."""
    entries: list[Entry] = field(default_factory=list[Entry])
    """In the order of the log."""
    calls: list[CallResultPair] = field(default_factory=list[CallResultPair])
    """In the order the assistant made them."""
    unanswered_calls: int = 0
    """Calls without a result."""
    rendered: Any = None
    """What the prompt keeps of its last rendering; cleared by whatever changes the round."""

    @property
    def paused(self) -> bool:
        """Whether its last word is a reply that goes on in the next one."""
        return bool(self.entries) and self.entries[-1].paused

    def find_unanswered_call(self, call_id: str) -> CallResultPair | None:
        """The first call of that id that still waits."""
        if self.unanswered_calls:
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
    message_count: int = 0
    """How many it holds."""
    has_thinking: bool = False
    """True where it holds signed thinking, so that its rounds stand or fall together."""
    has_instructions: bool = False
    """True where it holds a system or developer message, which no policy hides."""
    pinned: int = 0
    """How many of its messages are pinned."""
    revealed: int = 0
    """The position at which one of them was last revealed."""
    hidden: Edit | None = None
    """The drop or summary that hides it."""
    hidden_by: int = 0
    """The position of that edit's event."""

    @property
    def first(self) -> int:
        """Position of its first message."""
        return self.rounds[0].entries[0].seq

    @property
    def last(self) -> int:
        """Position of its last message."""
        return self.rounds[-1].entries[-1].seq

    def continues_with(self, *, next_has_thinking: bool, whole_loops: bool) -> bool:
        """Whether an assistant's next message, with signed thinking or without, belongs here.

        A provider refuses a loop that does not begin with the thinking it began with. So a round
        without any goes with the one before it; one with thinking of its own can do without those
        before it. Older renderers keep a loop `whole`.
        """
        last = self.rounds[-1]
        if last.paused or not last.calls:
            return last.paused
        return (
            (next_has_thinking or self.has_thinking)
            if whole_loops
            else (self.has_thinking and not next_has_thinking)
        )

    def entries(self) -> Iterator[Entry]:
        for round in self.rounds:
            yield from round.entries

    def calls(self) -> Iterator[CallResultPair]:
        for round in self.rounds:
            yield from round.calls

    def results(self) -> Iterator[ToolResultView]:
        for pairing in self.calls():
            if pairing.result is not None:
                yield pairing.result


def copy_group(group: Group) -> Group:
    """The same group, to be changed without this one; messages and edits never change."""
    twin = replace(group, rounds=[])
    for round in group.rounds:
        made = replace(round, group=twin, entries=[], calls=[])
        twin.rounds.append(made)
        entries: dict[int, Entry] = {}
        for entry in round.entries:
            edits, edited_by = dict(entry.edits), dict(entry.edited_by)
            entries[entry.seq] = replace(entry, round=made, edits=edits, edited_by=edited_by)
        made.entries = [*entries.values()]
        for pairing in round.calls:
            call, result = replace(pairing, result=None), pairing.result
            if result is not None:
                call.result = replace(result, entry=entries[result.seq], call=call)
            made.calls.append(call)
    return twin


def find_groups_within(groups: Sequence[Group], first_seq: int, last_seq: int) -> list[Group]:
    """Groups that lie wholly between two positions."""
    start = bisect_left(groups, first_seq, key=lambda group: group.first)
    return list(takewhile(lambda group: group.last <= last_seq, islice(groups, start, None)))


def find_groups_overlapping(groups: Sequence[Group], first_seq: int, last_seq: int) -> list[Group]:
    """Groups that reach between two positions."""
    start = bisect_left(groups, first_seq, key=lambda group: group.last)
    return list(takewhile(lambda group: group.first <= last_seq, islice(groups, start, None)))


ResultKey = tuple[int, int]
"""A result's message and its part there."""

MAX_RESULTS_PER_END = 1_000
"""Results at each end of a turn that are told apart; nobody keeps more of them."""


class TurnResultKeys:
    """The results since the newest user message, hidden or not: both ends, and how many."""

    def __init__(self, first: list[ResultKey], last: list[ResultKey], count: int) -> None:
        self.first = first
        self.last = deque(last, maxlen=MAX_RESULTS_PER_END)
        self.count = count

    def append(self, key: ResultKey) -> None:
        self.count += 1
        self.last.append(key)
        if len(self.first) < MAX_RESULTS_PER_END:
            self.first.append(key)

    def copy(self) -> TurnResultKeys:
        """The same, to be added to without these."""
        return TurnResultKeys([*self.first], [*self.last], self.count)

    def since(self, seq: int) -> TurnResultKeys:
        """Those from a position on."""
        rest = [key for key in self.last if key[0] >= seq]
        return TurnResultKeys(rest[:MAX_RESULTS_PER_END], rest, len(rest))

    def keys_at_ends(self, first_count: int, last_count: int) -> set[ResultKey]:
        """The first and the last so many."""
        return {*self.first[:first_count], *(list(self.last)[-last_count:] if last_count else ())}


class DroppedGroups:
    """The groups that drops have hidden: those in memory, and a count of those that left it."""

    def __init__(self, messages: int = 0, first: int = 0, last: int = 0) -> None:
        self._groups: dict[int, Group] = {}
        self._gone = (messages, first, last)
        self.message_count, self.first, self.last = self._gone

    def __bool__(self) -> bool:
        return self.message_count > 0

    def copy(self, groups: Sequence[Group]) -> DroppedGroups:
        """The same among copies of all groups."""
        twin = copy(self)
        twin._groups = {index: groups[index] for index in self._groups}  # noqa: SLF001 - its own class
        return twin

    def add(self, group: Group) -> None:
        self._groups[group.index] = group
        self.first = min(self.first, group.first) if self.message_count else group.first
        self.last = max(self.last, group.last)
        self.message_count += group.message_count

    def totals_after_eviction(self, evicted_groups: list[Group]) -> tuple[int, int, int]:
        """The count, first and last of those that left memory, once these have left it, too."""
        messages, first, last = self._gone
        firsts = [group.first for group in evicted_groups] + ([first] if messages else [])
        lasts = [group.last for group in evicted_groups]
        return (
            messages + sum(group.message_count for group in evicted_groups),
            min(firsts, default=0),
            max([*lasts, last]),
        )

    def discard(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._groups.pop(group.index, None)
        self.message_count, self.first, self.last = self.totals_after_eviction(
            [*self._groups.values()]
        )


def has_signed_thinking(message: Message) -> bool:
    """Whether signed thinking is in it, or was before it was erased: how rounds hold together must
    not change with what is destroyed."""
    if message.extra is not None and MODEL_FAMILY_KEY in message.extra:
        return True
    return any(type(part) is OpaqueBlock and part.thinking for part in message.parts)


def pair_calls_with_results(
    entry: Entry, make_unique_id: Callable[[str], str]
) -> tuple[bool, list[ToolResultView]]:
    """Pair a message's calls and results: whether it says more than results, and its answers."""
    round = entry.round
    spoken = not entry.message.parts
    answers: list[ToolResultView] = []
    for index, part in enumerate(entry.message.parts):
        if type(part) is ToolCall and entry.message.role == "assistant":
            round.calls.append(
                CallResultPair(id=part.id, wire_id=make_unique_id(part.id), name=part.name)
            )
            round.unanswered_calls += 1
        elif type(part) is not ToolResult:
            spoken = True
        elif (asked := round.find_unanswered_call(part.call_id)) is None:
            entry.unpaired_results = (*entry.unpaired_results, index)
        else:
            asked.result = ToolResultView(entry=entry, part=index, tool=asked.name, call=asked)
            round.unanswered_calls -= 1
            answers.append(asked.result)
    return spoken, answers
