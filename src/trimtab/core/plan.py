"""A policy's draft: edits on paper, with the arithmetic of what they would leave.

A policy reads the window, asks the plan for edits and looks at the totals. An edit that would not
make the window smaller is refused here, so no policy can re-mask a placeholder or grow a text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from trimtab.core.budget import Budget
from trimtab.core.calls import carried_over
from trimtab.core.cutting import Cut, cut, joined
from trimtab.core.edits import (
    Strategy,
    argument_cut,
    chars_within,
    chars_within_tail,
    masked,
    naming,
    omitted,
    shortened,
    shown,
    summarised_result,
    text_of,
    truncated,
    with_recall,
)
from trimtab.core.event import Edit, Size
from trimtab.core.keeping import kept_results
from trimtab.core.message import Opaque, Text, ToolCall
from trimtab.core.planned_words import PlannedWords
from trimtab.core.rounds import Entry, Group, Result
from trimtab.core.tokens import came_with, front_size, size_of, size_of_text, upper_bound
from trimtab.core.window import Window
from trimtab.core.words import names, whole

MASKABLE = 60
"""Tokens up to which a result is about as small as the placeholder that would stand for it."""

_PARTS = (
    "1,000,000 of 1,000,000 lines, 1,000 of them in between look like errors, 1,000,000 repeated"
)
"""About as long as what is shown of a long text takes to say."""

Unit = Literal["tokens", "bytes/4", "bytes", "chars"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """How large one text may be, and how it says that it was cut."""

    amount: int
    """In `unit`; the indicator counts too, but for `beside`."""
    unit: Unit = "tokens"
    """What `amount` counts; `tokens` is the window's own counter."""
    strategy: Strategy | Literal["lines"] = "head"
    """Which end is kept; `lines` keeps both ends and what looks like errors between them."""
    words: Callable[[Strategy, int, int], str] = truncated
    """The indicator, from the strategy and the kept and total amounts; `lines` has its own."""
    names: int = 0
    """How many words of what is cut the indicator names; 5 tokens are set aside for each."""
    beside: bool = False
    """True where the indicator comes on top of the amount, and names what is kept exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A range of messages, by position."""

    first: int
    """The first message."""
    last: int
    """The last message."""
    position: int | None = None
    """The log's length when the range was named, by which later changes in it are noticed."""
    tells: tuple[int, int] | None = None
    """The first and the last message of which the summary tells that is to be carried on; None
    without one."""
    spares: tuple[int, ...] = ()
    """First messages of groups within the range that stay as they are."""

    def takes(self, group: Group) -> bool:
        """Whether a visible group of the range is to be replaced."""
        return group.hidden is None and group.first not in self.spares


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy wants done before the next call."""

    edits: tuple[Edit, ...] = ()
    """In the order they are to be appended."""
    note: Mapping[str, Any] | None = None
    """The policy's own small record, kept with the call."""
    wanted: Span | None = None
    """Messages that should be summarised by someone who can."""
    summary_tokens: int | None = None
    """Tokens that a summary may take; None where only its being smaller counts."""
    list_tokens: int | None = None
    """Tokens that its list may take beside that; None is the usual."""
    frontier: int | None = None
    """Position of the first message that the next compaction could touch."""


Policy = Callable[[Window, Budget], Decision]


class Plan:
    """Edits not yet made."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self.window = window
        self.budget = budget
        self.bytes: int = window.bytes
        self.tokens: int = window.tokens
        self.messages: int = window.messages
        self.turn_bytes: int = window.turn_bytes
        self.breaks = False
        self._parts: dict[tuple[int, int], Edit] = {}
        self._groups: dict[int, tuple[int, int]] = {}
        self._dropped: dict[int, tuple[Group, str]] = {}
        self._summary: Edit | None = None
        self._summarised: dict[int, Group] = {}
        self._told: Size = window.told
        self._came = 0
        self._words = PlannedWords(window, budget)
        self._listed: Size = self._words.size
        self._kept: frozenset[tuple[int, int]] | None = None

    def adopt(self, edits: Iterable[Edit]) -> None:
        """Take over edits that a policy decided, by the same rules as if they were asked for."""
        dropped: dict[int, tuple[Group, str]] = {}
        for edit in edits:
            groups = [g for g in self.window.between(edit.first, edit.last) if g.hidden is None]
            match edit.op:
                case "mask" | "truncate" if edit.part is not None:
                    entry = self.window.entries.get(edit.first)
                    if entry is not None and 0 <= edit.part < len(entry.message.parts):
                        self._put(entry, edit.part, edit)
                case "summarise":
                    told = [group for group in groups if group.first not in edit.spares]
                    self.summarise(told, edit.text, edit.why)
                case "drop":
                    # Instructions go only if they alone are named.
                    named = [g for g in groups if not g.instructs] or groups
                    dropped |= {group.index: (group, edit.why) for group in named}
                case _:
                    pass
        # A summary, whichever was named first, has taken some of them.
        dropped = {
            index: each
            for index, each in dropped.items()
            if self.may_hide(each[0], instructions=True)
        }
        if not dropped:
            return
        # Whether a notice stands already makes no difference: asked again, the answer is the same.
        notice = front_size(self.window.counter, "", self._longest_notice()).tokens
        if sum(self._size_of(group)[1] for group, _ in dropped.values()) > notice:
            for group, why in dropped.values():
                self.drop(group, why, instructions=True)

    @property
    def summary(self) -> Edit | None:
        """The summary in force, were the plan carried out."""
        return self._summary or self.window.summary

    def bound(self) -> int:
        """The declared upper bound of the input, were the plan carried out."""
        window, anchor, ratio = self.window, self.window.anchor, self.budget.ratio
        whole = self.budget.head.tokens + self.tokens + self.budget.volatile
        bound = upper_bound(counter=window.counter, new=whole, ratio=ratio)
        if self.breaks or anchor is None:
            return min(bound, self._carried(bound))
        new = max(0, self.tokens - anchor.tokens) + self.budget.volatile
        usage = anchor.counted
        anchored = upper_bound(counter=window.counter, usage=usage, new=new, ratio=ratio)
        # A tail is in the usage, too, and is not sent again.
        return min(anchored, bound) if anchor.rode else anchored

    def _carried(self, bound: int) -> int:
        """The same by the size of the last request, less what left, plus what came: an edit that
        makes the context smaller must not make its bound larger."""
        carried = carried_over(self.window)
        if carried is None:
            return bound
        window, counter = self.window, self.window.counter
        front = window.front_since(carried)
        if self._summary is not None:
            front = front._replace(summary=self._summary.size.tokens)
        if self._dropped:
            front = front._replace(notice=size_of_text(self._longest_notice(), counter).tokens)
        if self._words.changed:
            words = self._words.size.tokens
            if not self._words.relists:
                listed = window.words.size(counter, recall=window.settings.recall).tokens
                words += front.words - listed
            front = front._replace(words=words)
        carried = carried._replace(came=carried.came + self._came)
        return carried.bound(
            counter,
            self.budget.ratio,
            tokens=self.tokens,
            came=sum(front),
            tail=self.budget.volatile,
        )

    @property
    def lists(self) -> bool:
        """Whether what users said in hidden messages is listed."""
        return self._words.allowance is not None

    def lists_whole(self, groups: Iterable[Group]) -> bool:
        """Whether all that users said is listed word for word, were groups hidden, too."""
        return self._words.whole(groups)

    @property
    def words(self) -> int:
        """Tokens of the user's words that are listed before the messages, under the plan."""
        return self._words.size.tokens

    def halve_words(self) -> bool:
        """Let the list of the user's words take half of what it takes; False where that is
        nothing."""
        halved = self._words.halve()
        self._count_words()
        return halved

    def settle(self) -> None:
        """Make the list of the user's words and count it exactly; until then it is estimated."""
        self._words.settle()
        self._count_words()

    def _count_words(self) -> None:
        before, self._listed = self._listed, self._words.size
        self.bytes += self._listed.bytes - before.bytes
        self.tokens += self._listed.tokens - before.tokens
        self.breaks = self.breaks or self._words.changed

    def groups(self) -> Iterable[Group]:
        """Visible groups that the plan has not hidden, oldest first."""
        return [g for g in self.window.visible.values() if not self.hides(g)]

    def hides(self, group: Group) -> bool:
        return group.index in self._dropped or group.index in self._summarised

    @property
    def kept(self) -> frozenset[tuple[int, int]]:
        """Results, by key, that the user wants hidden last."""
        if self._kept is None:
            self._kept = kept_results(self.window)
        return self._kept

    def keeps(self, group: Group) -> bool:
        """Whether a group holds a result that is hidden last and still shown."""
        return bool(self.kept) and any(
            r.key in self.kept and self.shows(r) for r in group.results()
        )

    def kept_last(self, groups: Iterable[Group]) -> list[Group]:
        """Groups in their order, but those that hold a result to be hidden last after all that
        hold other results."""
        ordered = list(groups)
        if not self.kept:
            return ordered
        kept = {group.index for group in ordered if self.keeps(group)}
        others = (at for at, g in enumerate(ordered) if g.index not in kept and any(g.results()))
        end = max(others, default=-1) + 1
        first = [group for group in ordered[:end] if group.index not in kept]
        return [*first, *(g for g in ordered[:end] if g.index in kept), *ordered[end:]]

    def size(self, entry: Entry, part: int) -> Size:
        """A part's size under the plan."""
        edit = self._parts.get((entry.seq, part))
        return entry.shown(part) if edit is None else edit.size

    def oldest_result(self) -> int | None:
        """Position of the oldest result that a mask could still make smaller under the plan."""
        for result in self.window.results.values():
            if self.size(result.entry, result.part).tokens > MASKABLE and self.shows(result):
                return result.seq
        return None

    def shows(self, result: Result) -> bool:
        """Whether a visible result stays so under the plan, whole or truncated."""
        edit = self._parts.get(result.key)
        kept = edit is None or edit.op != "mask"
        return kept and not self.hides(result.entry.round.group)

    def group_tokens(self, group: Group) -> int:
        """A group's tokens under the plan."""
        return self._size_of(group)[1]

    def net_tokens(self, group: Group) -> int:
        """Tokens that would leave with a group: what users said in it may stay in the list."""
        return self.group_tokens(group) - self._words.keeps(group)

    def group_bytes(self, group: Group) -> int:
        """A group's bytes under the plan."""
        return self._size_of(group)[0]

    def mask(self, entry: Entry, part: int, why: str, text: str | None = None) -> bool:
        """Replace a part by a placeholder; False where that would not make it smaller."""
        words = masked(self.size(entry, part).tokens) if text is None else text
        words = self._named(words, f"m{entry.seq}.{part}")
        edit = Edit(op="mask", first=entry.seq, last=entry.seq, part=part, text=words, why=why)
        return self._put(entry, part, edit)

    def truncate(self, entry: Entry, part: int, cap: Cap, why: str) -> bool:
        """Cut a text to a cap; False where it fits, or where cutting would not make it smaller."""
        text = text_of(entry.message.parts[part])
        total = self._measure(text, cap.unit)
        if total <= cap.amount:
            return False
        edit = Edit(op="truncate", first=entry.seq, last=entry.seq, part=part, why=why)
        if cap.strategy == "lines":
            return self._put(entry, part, self._in_lines(text, total, edit, cap))
        unit = 4 if cap.unit == "chars" else 1
        words = cap.words(cap.strategy, -(-cap.amount // unit), -(-total // unit))
        told = self._measure(self._named(words, edit.handle), cap.unit)
        aside = 0 if cap.beside else told + 5 * cap.names + 2
        head, tail = self._split(text, max(0, cap.amount - aside), cap)
        kept = text[:head] + text[len(text) - tail :]
        if cap.beside:
            words = cap.words(cap.strategy, self._measure(kept, cap.unit), total)
        elif aside > cap.amount // 2:
            # So little is kept that a round figure would be far off.
            amount = -(-self._measure(kept, cap.unit) // unit)
            words = cap.words(cap.strategy, amount, -(-total // unit))
        if cap.names:
            words = naming(words, self._names(whole(text, head, len(text) - tail), kept, cap))
        words = self._named(words, edit.handle)
        if not words.startswith("..."):
            words = ("\n" if head else "") + words + ("\n" if tail else "")
        return self._put(entry, part, replace(edit, text=words, head=head, tail=tail))

    def _in_lines(self, text: str, total: int, edit: Edit, cap: Cap) -> Edit:
        """The edit that keeps a text's ends and the lines between them that look like errors."""
        told = self._measure(self._named(shortened(total, total, _PARTS), edit.handle), cap.unit)
        room = max(0, cap.amount - told - 5 * cap.names - 2)
        made = cut(text, room, lambda piece: self._measure(piece, cap.unit))
        shown_text = joined(text, made.pieces)
        kept = self._measure(shown_text, cap.unit)
        words = shortened(kept, total, _parts_of(made))
        if cap.names:
            words = naming(words, self._names(_between(text, made.pieces), shown_text, cap))
        return replace(edit, text=self._named(words, edit.handle), pieces=made.pieces)

    def cut_arguments(self, entry: Entry, part: int, longest: int, why: str) -> bool:
        """Leave long texts out of a call's arguments; False where that makes it no smaller."""
        words = self._named(argument_cut(self.size(entry, part).tokens), f"m{entry.seq}.{part}")
        edit = Edit(
            op="truncate",
            first=entry.seq,
            last=entry.seq,
            part=part,
            text=words,
            head=longest,
            why=why,
        )
        return self._put(entry, part, edit)

    def summarise_part(self, entry: Entry, part: int, text: str, why: str) -> bool:
        """Let a summary stand for one result; False where that would not make it smaller."""
        seq, whole = entry.seq, self.size(entry, part).tokens
        frame = self._named(summarised_result(whole), f"m{seq}.{part}")
        words = f"{frame}\n{text}"
        edit = Edit(op="truncate", first=seq, last=seq, part=part, text=words, why=why)
        return self._put(entry, part, edit)

    def drop(self, group: Group, why: str, *, instructions: bool = False) -> bool:
        """Hide a whole group; False for one that must stay. One that holds instructions stays
        unless it is said that they may go, too."""
        if not self.may_hide(group, instructions=instructions):
            return False
        if not self._dropped:
            self._set_front(self._summary_text(), notice=True)
        self._dropped[group.index] = (group, why)
        self._leave(group)
        return True

    def drop_oldest(
        self,
        enough: Callable[[], bool],
        why: str,
        *,
        before: int | None = None,
        after: int | None = None,
        unread: bool = False,
    ) -> None:
        """Drop oldest groups until it is enough, or until nothing is left that may go; what was
        revealed and is unread only where that is said."""
        if enough():
            return
        among = [
            group
            for group in self.window.visible.values()
            if (before is None or group.index < before)
            and (after is None or group.index > after)
            and (unread or not self.unread(group))
        ]
        for group in self.kept_last(among):
            if self.drop(group, why) and enough():
                return

    @contextmanager
    def provided(self, reached: Callable[[], bool]) -> Generator[None, None, None]:
        """Take back what was hidden whole where that did not reach what it was done for."""
        before = self._state()
        yield
        if not reached():
            vars(self).update(before)

    def _state(self) -> dict[str, Any]:
        names = ("_parts", "_groups", "_dropped", "_summarised", "_words")
        return {**vars(self), **{name: vars(self)[name].copy() for name in names}}

    def summarise(self, groups: list[Group], text: str, why: str) -> bool:
        """Replace groups and the summary before them by a new one; False if it saves nothing."""
        groups = [group for group in groups if self.may_hide(group) and not self.unread(group)]
        if not groups or not text.strip():
            return False
        tokens = self.tokens
        with self.provided(lambda: self.tokens < tokens):
            self._summary = self._summary_of(groups, text, why)
            for group in groups:
                self._summarised[group.index] = group
                self._leave(group)
            self._set_front(self._summary_text(), notice=bool(self._dropped or self.window.dropped))
        return self.tokens < tokens

    def size_of_summary(self, groups: list[Group], text: str) -> int:
        """Tokens that a summary of groups would take, as it is sent."""
        return self._summary_of(groups, text, "").size.tokens

    def _summary_of(self, groups: list[Group], text: str, why: str) -> Edit:
        prior = self.summary
        first = min([group.first for group in groups] + ([prior.first] if prior else []))
        last = max([group.last for group in groups] + ([prior.last] if prior else []))
        return self._sized(Edit(op="summarise", first=first, last=last, text=text, why=why))

    def shorten_summary(self, enough: Callable[[], bool], why: str) -> None:
        """Cut the summary from its start, by halves, until it is enough or hardly any is left."""
        current = self.summary
        while current is not None and len(current.text) > 1 and not enough():
            text = "…" + current.text[1 + len(current.text) // 2 :]
            # The list of the user's words that came with it stands as it is.
            current = replace(current, listed=(), relists=False, left_out=None)
            current = self._summary = self._sized(replace(current, text=text, why=why))
            self._set_front(self._summary_text(), notice=bool(self._dropped or self.window.dropped))
            self.breaks = True

    def decision(
        self,
        *,
        note: Mapping[str, Any] | None = None,
        wanted: Span | None = None,
        summary_tokens: int | None = None,
        list_tokens: int | None = None,
        frontier: int | None = None,
    ) -> Decision:
        """The edits, in order; those inside a group that is hidden whole are left out."""
        self.settle()
        edits = [
            edit
            for (seq, _), edit in self._parts.items()
            if not self.hides(self.window.entries[seq].round.group)
        ]
        # A summary hides what lies between its ends: what it does not tell of is dropped before.
        edits.extend(self._drops())
        if (summary := self._summary) is not None:
            within = self.window.between(summary.first, summary.last)
            seen = (group for group in within if group.hidden is None)
            # One that is only made shorter tells of nothing that has come into sight again.
            spares = tuple(g.first for g in seen if self.may_hide(g, instructions=True))
            edits.append(replace(summary, spares=spares))
        edits = self._words.told_by(edits)
        return Decision(
            edits=tuple(edits),
            note=note,
            wanted=wanted,
            summary_tokens=summary_tokens,
            list_tokens=list_tokens,
            frontier=frontier,
        )

    def _drops(self) -> list[Edit]:
        """One edit for each run of dropped groups that nothing visible interrupts."""
        runs: list[tuple[Group, Group, str]] = []
        for index, (group, why) in sorted(self._dropped.items()):
            if runs and runs[-1][2] == why:
                first, last, _ = runs[-1]
                between = self.window.groups[last.index + 1 : index]
                if all(other.hidden or other.pinned for other in between):  # they stay as they are
                    runs[-1] = (first, group, why)
                    continue
            runs.append((group, group, why))
        return [
            Edit(op="drop", first=first.first, last=last.last, why=why) for first, last, why in runs
        ]

    def _put(self, entry: Entry, part: int, edit: Edit) -> bool:
        told = entry.message.parts[part]
        if isinstance(told, Opaque) or (isinstance(told, ToolCall) and not self._may_cut(entry)):
            return False  # a provider's own block belongs to its whole
        if entry.pinned:
            return False
        if edit.op == "mask" and entry is self.window.newest_user and isinstance(told, Text):
            return False  # something of what was asked stays
        if entry.round.group.hidden is not None or self.hides(entry.round.group):
            return False
        current = self._parts.get((entry.seq, part)) or entry.edits.get(part)
        if current is not None and current.op == "mask":
            return False  # a placeholder stays as it is
        before = self.size(entry, part)
        size = size_of(shown(told, edit), self.window.counter)
        if size.tokens >= before.tokens or size.bytes > before.bytes:
            return False
        self._parts[entry.seq, part] = replace(edit, size=size)
        group = entry.round.group
        self._count(group, size.bytes - before.bytes, size.tokens - before.tokens)
        delta = self._groups.get(group.index, (0, 0))
        self._groups[group.index] = (
            delta[0] + size.bytes - before.bytes,
            delta[1] + size.tokens - before.tokens,
        )
        self.breaks = self.breaks or entry.seq <= self.window.sent
        self._came += came_with(self._parts[entry.seq, part], told, self.window.counter)
        return True

    def _may_cut(self, entry: Entry) -> bool:
        """Whether a message's calls may be shortened: not those that the model made last, and not
        what its provider has yet to go on with."""
        return entry.seq != self.window.replied and not entry.paused

    def unread(self, group: Group) -> bool:
        """Whether it was revealed and the model has not replied to a call that was made since."""
        return group.revealed > self.window.seen

    def may_hide(self, group: Group, *, instructions: bool = False) -> bool:
        """Whether it is neither hidden already nor one that must stay."""
        stays = group.pinned or (group.instructs and not instructions)
        return not (stays or self.window.protected(group) or self.hides(group))

    def _leave(self, group: Group) -> None:
        size = self._size_of(group)
        self._count(group, -size[0], -size[1])
        self.messages -= group.messages
        self._words.take(group)
        self._count_words()
        self.breaks = True

    def _size_of(self, group: Group) -> tuple[int, int]:
        delta = self._groups.get(group.index, (0, 0))
        return group.bytes + delta[0], group.tokens + delta[1]

    def _count(self, group: Group, size: int, tokens: int) -> None:
        self.bytes += size
        self.tokens += tokens
        if group.index >= self.window.turn_start:
            self.turn_bytes += size

    def _set_front(self, summary: str, *, notice: bool) -> None:
        """Count what will stand before the first kept message, the notice at its longest."""
        words = self._longest_notice() if notice else ""
        before, self._told = self._told, front_size(self.window.counter, summary, words)
        self.bytes += self._told.bytes - before.bytes
        self.tokens += self._told.tokens - before.tokens

    def notice_bytes(self) -> int:
        """Bytes by which the front grows when something is dropped."""
        front = front_size(self.window.counter, self._summary_text(), self._longest_notice())
        return max(0, front.bytes - self._told.bytes)

    def _longest_notice(self) -> str:
        last = self.window.seq
        return self._named(omitted(last), f"m{last}-m{last}")

    def _summary_text(self) -> str:
        return self.window.framed(self.summary)

    def _sized(self, summary: Edit) -> Edit:
        """The edit with its size, and the summary that it carries on."""
        size = front_size(self.window.counter, self.window.framed(summary), "")
        prior = self.window.summary_by if self.window.summary is not None else 0
        return replace(summary, size=size, prior=prior)

    def _named(self, words: str, handle: str) -> str:
        return with_recall(words, handle) if self.window.settings.recall else words

    def _names(self, cut: str, kept: str, cap: Cap) -> str:
        """Words of what is cut, as many as fit into what is set aside for them."""
        limit = cap.names
        named = names(cut, limit, kept)
        while self._measure(naming("]", named), cap.unit) > 5 * cap.names:
            limit = limit * 3 // 4
            named = names(cut, limit, kept)
        return named

    def _measure(self, text: str, unit: Unit) -> int:
        match unit:
            case "tokens":
                return self.window.counter.count(text)
            case "bytes/4":
                return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4
            case "bytes":
                return len(text.encode("utf-8", "surrogatepass"))
            case "chars":
                return len(text)

    def _split(self, text: str, room: int, cap: Cap) -> tuple[int, int]:
        """Characters to keep from the start and from the end."""
        match cap.strategy:
            case "head":
                return self._within(text, room, cap.unit), 0
            case "tail":
                return 0, self._within(text, room, cap.unit, end=True)
            case _:
                half = room // 2
                return self._within(text, half, cap.unit), self._within(
                    text, half, cap.unit, end=True
                )

    def _within(self, text: str, room: int, unit: Unit, *, end: bool = False) -> int:
        if unit == "chars":
            return min(room, len(text))
        if unit != "tokens":
            limit = room * 4 if unit == "bytes/4" else room
            return chars_within_tail(text, limit) if end else chars_within(text, limit)
        count = self.window.counter.count
        low, high = 0, len(text)
        # A twentieth of the room is precise enough; each step counts the text once more.
        while high - low > max(1, room // 20):
            middle = (low + high + 1) // 2
            piece = text[-middle:] if end else text[:middle]
            low, high = (middle, high) if count(piece) <= room else (low, middle - 1)
        return low


def _parts_of(made: Cut) -> str:
    """What a cut in lines says is shown."""
    parts = [f"{made.shown:,} of {made.lines:,} lines"]
    if made.errors:
        parts.append(f"{made.errors:,} of them in between look like errors")
    if made.repeats:
        parts.append(f"{made.repeats:,} repeated lines left out")
    return ", ".join(parts)


def _between(text: str, pieces: Iterable[tuple[int, int]]) -> str:
    """What a cut in lines leaves out."""
    left: list[str] = []
    at = 0
    for start, end in pieces:
        left.append(text[at:start])
        at = end
    return "\n".join([*left, text[at:]])
