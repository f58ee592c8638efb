"""The structure of a conversation: entries in rounds, rounds in groups.

An *entry* is one message of the log. A *round* is a single message, or an assistant's calls with
all their results and all messages that arrived while they were open. A *group* is the unit that is
hidden as a whole. It is one round, or a round with signed thinking and the following rounds without
thinking of their own, or a reply that its provider paused and its continuation. A group that loaded
a tool stays as long as a group that calls this tool.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Any

from trimtab.engine.log.event import Edit, Size
from trimtab.engine.log.message import MODEL_FAMILY_KEY, Message, OpaqueBlock, ToolCall, ToolResult


@dataclass(slots=True)
class Entry:
    """One message of a window, with its sizes and what of it is hidden."""

    seq: int
    """Position of the message's event in the log."""
    message: Message
    """The complete message."""
    sizes: tuple[Size, ...]
    """Size of each part in full."""
    round: Round
    """The round that contains it."""
    edits: dict[int, Edit] = field(default_factory=dict[int, Edit])
    """By part index: the truncate or mask edit that is in force for the part."""
    edited_by: dict[int, int] = field(default_factory=dict[int, int])
    """By part index: the position of that edit's event."""
    unpaired_results: tuple[int, ...] = ()
    """Indexes of results that answer no open call. They are shown as text."""
    pinned: bool = False
    """True if no policy may hide its group."""
    revealed: int = 0
    """Position of the newest event that revealed it."""
    is_repair: bool = False
    """True for a substitute result of a call that never got one."""
    paused: bool = False
    """True for a reply that continues in the next one."""
    at: float | None = None
    """Time of the message, in seconds since the epoch; None if it is not known."""

    def shown_size(self, part: int) -> Size:
        """Return the part's size as the model sees it."""
        edit = self.edits.get(part)
        return self.sizes[part] if edit is None else edit.size

    @property
    def bytes(self) -> int:
        """Bytes of all parts as the model sees them."""
        return sum(self.shown_size(i).bytes for i in range(len(self.sizes)))

    @property
    def tokens(self) -> int:
        """Tokens of all parts as the model sees them."""
        return sum(self.shown_size(i).tokens for i in range(len(self.sizes)))


@dataclass(slots=True)
class CallResultPair:
    """A tool call and its result, if it has one."""

    id: str
    """The provider's id. Another call elsewhere in the log may have the same id."""
    wire_id: str
    """The id as it is sent: unique in the session."""
    name: str
    """The tool's name."""
    arguments: str
    """The JSON text of its arguments, as the model wrote it."""
    result: ToolResultView | None = None
    """The result that answers the call."""


@dataclass(slots=True)
class ToolResultView:
    """One tool result, as policies see it."""

    entry: Entry
    """The message that carries it."""
    part: int
    """Index of the part in that message."""
    tool: str
    """Name of the tool that returned it."""
    call: CallResultPair
    """The call that it answers."""

    @property
    def seq(self) -> int:
        return self.entry.seq

    @property
    def key(self) -> tuple[int, int]:
        return (self.entry.seq, self.part)

    @property
    def arguments(self) -> str:
        """The JSON text of the arguments of the call. Do not look for the call by its id: some
        servers number the calls of each reply anew."""
        return self.call.arguments

    @property
    def handle(self) -> str:
        """The handle by which its whole text can be recalled."""
        return f"m{self.entry.seq}.{self.part}"

    @property
    def size(self) -> Size:
        """Size as the model sees it now."""
        return self.entry.shown_size(self.part)

    @property
    def edit(self) -> Edit | None:
        """The truncate or mask edit in force."""
        return self.entry.edits.get(self.part)


@dataclass(slots=True)
class Round:
    """The reply of an assistant with the results of its calls, or another message alone."""

    group: Group
    """The group with which it is hidden."""
    entries: list[Entry] = field(default_factory=list[Entry])
    """Messages in the order of the log."""
    calls: list[CallResultPair] = field(default_factory=list[CallResultPair])
    """Calls in the order in which the assistant made them."""
    unanswered_calls: int = 0
    """Number of calls without a result."""
    rendered: Any = None
    """The cached rendering. Every change of the round clears it."""

    @property
    def paused(self) -> bool:
        """Whether it ends with a reply that continues in the next one."""
        return bool(self.entries) and self.entries[-1].paused

    def find_unanswered_call(self, call_id: str) -> CallResultPair | None:
        """Return the first call with this id that has no result."""
        if self.unanswered_calls:
            for pairing in self.calls:
                if pairing.result is None and pairing.id == call_id:
                    return pairing
        return None


@dataclass(slots=True)
class Group:
    """Rounds that are hidden together."""

    index: int
    """Its index among all groups of the session."""
    rounds: list[Round] = field(default_factory=list[Round])
    """At least one."""
    bytes: int = 0
    """Bytes of its messages as the model sees them if the group is visible."""
    tokens: int = 0
    """Tokens of its messages as the model sees them if the group is visible."""
    message_count: int = 0
    """Number of messages."""
    has_thinking: bool = False
    """True if it contains signed thinking, so that its rounds stay together."""
    has_instructions: bool = False
    """True if it contains a system or developer message, which no policy hides."""
    has_user_words: bool = False
    """True if it contains words of a user."""
    pinned: int = 0
    """Number of pinned messages."""
    revealed: int = 0
    """Position at which one of them was last revealed."""
    calling_groups: list[int] = field(default_factory=list[int])
    """Indexes of later groups that call tools that it loaded."""
    hidden: Edit | None = None
    """The drop or summary that hides it."""
    hidden_by: int = 0
    """Position of that edit's event."""

    @property
    def first(self) -> int:
        """Position of its first message."""
        return self.rounds[0].entries[0].seq

    @property
    def last(self) -> int:
        """Position of its last message."""
        return self.rounds[-1].entries[-1].seq

    def continues_with(self, *, next_has_thinking: bool) -> bool:
        """Whether an assistant's next message, with or without signed thinking, belongs to this
        group.

        A provider refuses a loop that does not begin with its original thinking. So a round without
        thinking stays with the round before it. A round with its own thinking does not need the
        rounds before it.
        """
        last = self.rounds[-1]
        if last.paused or not last.calls:
            return last.paused
        return self.has_thinking and not next_has_thinking

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
    """Return a copy of the group that can change independently. Messages and edits are shared."""
    twin = replace(group, rounds=[], calling_groups=[*group.calling_groups])
    for round in group.rounds:
        round_copy = replace(round, group=twin, entries=[], calls=[])
        twin.rounds.append(round_copy)
        entries: dict[int, Entry] = {}
        for entry in round.entries:
            edits = dict(entry.edits)
            edited_by = dict(entry.edited_by)
            entries[entry.seq] = replace(entry, round=round_copy, edits=edits, edited_by=edited_by)
        round_copy.entries = [*entries.values()]
        for pairing in round.calls:
            call = replace(pairing, result=None)
            result = pairing.result
            if result is not None:
                call.result = replace(result, entry=entries[result.seq], call=call)
            round_copy.calls.append(call)
    return twin


def find_groups_within(groups: Sequence[Group], first_seq: int, last_seq: int) -> list[Group]:
    """Return the groups that lie completely between two positions."""
    start = bisect_left(groups, first_seq, key=lambda group: group.first)
    return list(takewhile(lambda group: group.last <= last_seq, islice(groups, start, None)))


def find_groups_overlapping(groups: Sequence[Group], first_seq: int, last_seq: int) -> list[Group]:
    """Return the groups that lie at least partly between two positions."""
    start = bisect_left(groups, first_seq, key=lambda group: group.last)
    return list(takewhile(lambda group: group.first <= last_seq, islice(groups, start, None)))


ResultKey = tuple[int, int]
"""A result's message and its part index."""

MAX_RESULTS_PER_END = 1_000
"""Maximum number of results to track at each end of a turn. No policy keeps more."""


class TurnResultKeys:
    """The results since the newest user message, including hidden ones: both ends, and the
    number."""

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
        """Return a copy that can grow independently."""
        return TurnResultKeys([*self.first], [*self.last], self.count)

    def since(self, seq: int) -> TurnResultKeys:
        """Return the results from a position on."""
        rest = [key for key in self.last if key[0] >= seq]
        return TurnResultKeys(rest[:MAX_RESULTS_PER_END], rest, len(rest))

    def keys_at_ends(self, first_count: int, last_count: int) -> set[ResultKey]:
        """Return this number of first and last results."""
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
        """Return the same state for copies of all groups."""
        twin = copy(self)
        twin._groups = {index: groups[index] for index in self._groups}  # noqa: SLF001 - its own class
        return twin

    def add(self, group: Group) -> None:
        self._groups[group.index] = group
        self.first = min(self.first, group.first) if self.message_count else group.first
        self.last = max(self.last, group.last)
        self.message_count += group.message_count

    def totals_after_eviction(self, evicted_groups: list[Group]) -> tuple[int, int, int]:
        """Return the count, first and last position of evicted groups after these groups also leave
        memory."""
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
    """Whether a message contains signed thinking, or contained it before it was erased.

    An erasure must not change how rounds are grouped.
    """
    if message.extra is not None and MODEL_FAMILY_KEY in message.extra:
        return True
    return any(type(part) is OpaqueBlock and part.thinking for part in message.parts)


def pair_calls_with_results(
    entry: Entry, make_unique_id: Callable[[str], str]
) -> tuple[bool, list[ToolResultView]]:
    """Pair a message's calls and results. Return whether it contains more than results, and its
    answers."""
    round = entry.round
    spoken = not entry.message.parts
    answers: list[ToolResultView] = []
    for index, part in enumerate(entry.message.parts):
        if type(part) is ToolCall and entry.message.role == "assistant":
            round.calls.append(
                CallResultPair(
                    id=part.id,
                    wire_id=make_unique_id(part.id),
                    name=part.name,
                    arguments=part.arguments,
                )
            )
            round.unanswered_calls += 1
        elif type(part) is not ToolResult:
            spoken = True
        elif (open_call := round.find_unanswered_call(part.call_id)) is None:
            entry.unpaired_results = (*entry.unpaired_results, index)
        else:
            open_call.result = ToolResultView(
                entry=entry, part=index, tool=open_call.name, call=open_call
            )
            round.unanswered_calls -= 1
            answers.append(open_call.result)
    return spoken, answers
