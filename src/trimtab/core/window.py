"""The log folded: what the model sees now, the size of each part, and running totals.

A window is changed only by `apply(event)`. It never runs a policy: what is hidden was decided by
an event. All that a policy asks of it at every call is kept up to date, so that a call costs what
is new, whatever the length of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from trimtab.core.cache_meter import CacheMeter
from trimtab.core.calls import (
    Anchor,
    Carried,
    Pending,
    Rejection,
    carried_over,
    happened,
    served_otherwise,
)
from trimtab.core.edits import ERASED, omitted, shown, summary_text, with_recall
from trimtab.core.erase import eraser, scrub
from trimtab.core.event import (
    Edit,
    Erase,
    Event,
    Json,
    Pin,
    Repair,
    Retention,
    Rewind,
    Said,
    Sent,
    Settings,
    Size,
    Usage,
)
from trimtab.core.forgetting import REWINDS, needed, refuse_forgotten, resume, snapshot_of, unfold
from trimtab.core.message import Message
from trimtab.core.rewinding import in_force
from trimtab.core.rounds import (
    Dropped,
    Entry,
    Group,
    Pairing,
    Result,
    Round,
    TurnResults,
    around,
    has_thinking,
    pair,
    within,
)
from trimtab.core.snapshot import Snapshot
from trimtab.core.summary_meter import SummaryMeter
from trimtab.core.tokens import (
    Counter,
    came_with,
    estimator,
    front_size,
    media_in,
    plus,
    resized,
    size_of_text,
    sizes_of,
)
from trimtab.core.user_words import UserWords, speaks

LOOPS_IN_ROUNDS = 4
"""The renderer from which on a loop with signed thinking may lose its early rounds, and a turn does
not begin with what a client program says."""


class Front(NamedTuple):
    """Tokens of what stands before the messages."""

    summary: int
    """Of the summary."""
    notice: int
    """Of the notice that messages were dropped."""
    words: int
    """Of the user's earlier words."""


class Window:
    """What the model sees now. Policies read it; only `apply` changes it."""

    def __init__(
        self,
        counters: Mapping[str, Counter] | None = None,
        snapshot: Snapshot | None = None,
        named: Iterable[Event] = (),
    ) -> None:
        self.counters = dict(counters or {})
        self.counter: Counter = self._named("")
        self.settings = Settings(model="", dialect="")
        self.seq = self.epoch = self.settings_by = 0
        """Positions: the last event's and the settings'; the epoch of the newest turn."""
        self.version = 0
        """Rises whenever something already sent is changed: the provider's cache ends there."""
        self.sent = 0
        """The last position that has been sent in a call."""
        self._begin()
        self.erased: list[tuple[int, int, int | None, int]] = []
        """Erased ranges: first and last position, part or None for all, and the event's own."""
        self.rewinds: list[tuple[int, int]] = []
        """The position of each rewind, and where it went back to."""
        self.keys: dict[str, int] = {}
        """By the sender's idempotency key: the position of the message that came with it."""
        self.recounted = False
        """True where sizes that the events carry were taken with another counter."""
        self.base = Snapshot(seq=0)
        """What the fold starts from; hidden messages before it are no longer in memory."""
        self.kept: dict[int, Event] = {}
        """The events that `base` names, by position."""
        self.past: list[Event] = []
        """Messages, edits, pins and rewinds since `base`."""
        self.folds = 0
        """Rises whenever the messages are folded anew: what points into the window is void."""
        self._clear()
        if snapshot is not None:
            resume(self, snapshot, named)

    def _begin(self) -> None:
        """No call was made yet."""
        self.last_call: Sent | None = None
        self.note: Json | None = None
        """The policy's own record of the last call; a fork starts without one."""
        self.cold = True
        """True until the next call where the provider's cache cannot hold its prefix."""
        self.cache = CacheMeter()
        """How far the provider's cache may be relied on."""
        self.calls = 0
        self.last_usage: Usage | None = None
        self.used = Usage(input=0)
        """All that was reported so far, added up."""
        self.paid: float | None = 0.0
        self.learned_limit: int | None = None
        self.ratio = 1.0
        """Reported input over our estimate, at the last call that reported."""
        self.weighed: tuple[float, float] = (0.0, 0.0)
        """Text that was new in a call: as it was reported and as we had estimated it, faded."""
        self.anchor: Anchor | None = None
        """The last call that reported, if still a prefix."""
        self.carried: Carried | None = None
        """What that call tells of the size of the next where an edit has changed it since."""
        self.call_version = -1
        """The version at the last call: equal to `version` where its request is still a prefix."""
        self.awaiting: int | None = None
        """The position of the last call, until its outcome is known."""
        self.overflowed = False
        """True where the last call was refused for its length and its input was counted."""
        self.refused = False
        """True where it was refused for its length and neither was counted nor a limit named."""
        self.rejection: Rejection = Rejection()
        """The last call, if its provider did not take what was said."""
        self.started: list[str] = []  # keys of tools, since the newest reply
        self.summaries = SummaryMeter()
        """How the summaries went that a model was asked for."""
        self.pending = Pending(0, 0)
        """Our estimates at the last call."""
        self.disbelieved = 0
        """The input that was reported for the last call, where that cannot be true."""
        self.doubted = False
        """True where a refusal without numbers was so small that it taught no limit."""

    def _clear(self) -> None:
        self.folds += 1
        self.memo: dict[str, object] = {}
        """What others keep beside the fold; anything here can be made again from the rest."""
        self.entries: dict[int, Entry] = {}
        self.rounds: list[Round] = []
        self.groups: list[Group] = []
        self.visible: dict[int, Group] = {}
        self.results: dict[tuple[int, int], Result] = {}
        """Results that are neither masked nor hidden, oldest first."""
        self.bytes = 0
        """Of all visible messages, with notice and summary."""
        self.tokens = 0
        """Of all visible messages, with notice and summary."""
        self.messages = 0
        """Visible messages, without notice and summary."""
        self.newest_user: Entry | None = None
        self.turn_start = -1
        """Index of the group that holds the newest user message; -1 before the first."""
        self.turn_bytes = 0
        self.turn_tokens = 0
        self.turn_results = TurnResults([], [], 0)
        """All results since the newest user message, hidden or not."""
        self.last_reply: str | None = None
        """The provider's id of the newest reply."""
        self.last_reply_by = 0
        """The position of that reply."""
        self.replied = self.revealed = 0
        """The positions of the newest message of the model, and of what was last revealed."""
        self.summary: Edit | None = None
        self.summary_by = 0
        """The position of the summary's event."""
        self.words = UserWords()
        """What users said in messages that are hidden, as the model goes on seeing it."""
        self.dropped = Dropped()
        self.gone: dict[str, tuple[int, int]] = {}
        """By kind of edit: hidden messages that left memory, and their tokens."""
        self.gone_last = 0
        """The last position that left memory."""
        self.front = Size(bytes=0, tokens=0)
        """Of the user's words, summary and notice, which stand before the first kept message."""
        self.told = Size(bytes=0, tokens=0)
        """Of summary and notice alone."""
        self.media: dict[tuple[int, int], int] = {}
        """By message and part: tokens of the pictures and files in it."""
        self.wire_ids: set[str] = set()
        """Ids of the calls that are visible, as they are sent."""

    def apply(self, *events: Event) -> None:
        """Fold further events. Raises Forgotten before the first that takes what left memory."""
        erasing: list[Event] = []
        try:
            for event in events:
                if event.seq != self.seq + 1:
                    raise ValueError(f"event {event.seq} cannot follow position {self.seq}")
                if erasing and not isinstance(event.body, Erase):
                    self._erase(erasing)
                    erasing = []
                refuse_forgotten(self, event.body)
                self.seq = event.seq
                if isinstance(event.body, Erase):
                    erasing.append(event)
                else:
                    self._fold(event)
        finally:
            if erasing:
                self._erase(erasing)

    def _fold(self, event: Event) -> None:
        match event.body:
            case Said() | Repair() as body:
                self._say(event, body)
            case Edit() as body:
                self.past.append(event)
                self._edit(event.seq, body)
            case Settings() as body:
                self._settings(event.seq, body)
            case Pin() as body:
                self.past.append(event)
                self._pin(body)
            case Rewind() as body:
                self.past.append(event)
                self._rewind(body)
            case Retention() as body:
                self._forget(body.before - 1)
            case _:
                happened(self, event)

    @property
    def said(self) -> int:
        """Messages in force, hidden ones included."""
        return len(self.entries) + sum(count for count, _ in self.gone.values())

    def open_calls(self) -> list[Pairing]:
        """Calls of the last round that have no result yet."""
        if not self.rounds or not self.rounds[-1].waiting:
            return []
        return [pairing for pairing in self.rounds[-1].calls if pairing.result is None]

    def new_results(self) -> Iterator[Result]:
        """Visible results that were never sent, newest first."""
        for result in reversed(self.results.values()):
            if result.seq <= self.sent:
                return
            yield result

    def protected(self, group: Group) -> bool:
        """Whether the group holds the newest user message or the active round."""
        return group.index in (len(self.groups) - 1, self.turn_start)

    @property
    def seen(self) -> int:
        """The last position that the model has replied to: a call that was made may have failed."""
        return min(self.sent, self.replied)

    def notice(self) -> str:
        """What tells the model that messages were dropped; empty where none were."""
        text = omitted(self.dropped.messages) if self.dropped else ""
        handle = f"m{self.dropped.first}-m{self.dropped.last}"
        return with_recall(text, handle) if text and self.settings.recall else text

    def framed(self, summary: Edit | None) -> str:
        """A summary as the model reads it; empty where there is none."""
        if summary is None or not summary.text:
            return ""
        handle = summary.handle if self.settings.recall else ""
        return summary_text(summary.text, handle, self.settings.renderer)

    def media_tokens(self) -> int:
        """Estimated tokens of the pictures and files that are shown."""
        total = 0
        for (seq, part), tokens in self.media.items():
            entry = self.entries[seq]
            if entry.round.group.hidden is not None:
                continue
            edit = entry.edits.get(part)
            said = entry.message.parts[part]
            total += tokens if edit is None else media_in(shown(said, edit), self.counter)
        return total

    def front_since(self, carried: Carried) -> Front:
        """Tokens of what stands before the messages now and did not before something was hidden."""
        sizes = self.words.sizes(self.counter, recall=self.settings.recall)
        notice = size_of_text(self.notice(), self.counter).tokens
        summary = self.told.tokens - notice
        return Front(
            summary if self.summary_by != carried.summary else 0,
            notice if self.dropped.messages != carried.dropped else 0,
            sum(size.tokens for size in sizes[carried.blocks :]),
        )

    def know(self, counter: Counter) -> None:
        """Make a counter known by its name, for settings that will ask for it."""
        self.counters[counter.name] = counter

    def _named(self, name: str) -> Counter:
        """The counter of that name: the caller's own, else the estimator it was taken with."""
        return self.counters.get(name) or estimator(name)

    def use(self, settings: Settings, seq: int) -> None:
        self.settings, self.settings_by = settings, seq
        self.counter = self._named(settings.counter)

    def _settings(self, seq: int, body: Settings) -> None:
        before = self.settings
        self.use(body, seq)
        served_otherwise(self, before)
        if body.counter != before.counter:
            self.recounted = bool(self.past or self.kept)
            self.ratio, self.weighed = 1.0, (0.0, 0.0)
            self._refold()
        elif _regroups(before, body):
            self._refold()
        else:
            self.words.stale()
            self.recount_front()
        for round in self.rounds:
            round.rendered = None
        self.cold = True
        self._break()

    def _say(self, event: Event, body: Said | Repair) -> None:
        self.past.append(event)
        if body.message.role == "assistant":
            self.started, self.replied = [], event.seq
        last = self.rounds[-1] if self.rounds else None
        open_ = last if last is not None and last.waiting else None
        self.admit(event.seq, body, open_ or self._new_round(body.message), event.at)
        if isinstance(body, Said):
            if body.reply_id is not None:
                self.last_reply, self.last_reply_by = body.reply_id, event.seq
            if body.key is not None:
                self.keys[body.key] = event.seq

    def admit(self, seq: int, body: Said | Repair, round: Round, at: float) -> None:
        """Put a message into a round, and count and pair what it holds."""
        message = body.message
        counter = body.counter if isinstance(body, Said) else ""
        fits = counter == self.counter.name and len(body.sizes) == max(1, len(message.parts))
        sizes = body.sizes if fits else sizes_of(message, self.counter)
        entry = Entry(seq=seq, message=message, sizes=sizes, round=round, at=at)
        for index, part in enumerate(message.parts):
            if tokens := media_in(part, self.counter):
                self.media[seq, index] = tokens
        entry.repair = isinstance(body, Repair)
        entry.paused = isinstance(body, Said) and body.paused
        self.entries[seq] = entry
        round.entries.append(entry)
        round.rendered = None
        group = round.group
        self._grow(group, sum(s.bytes for s in sizes), sum(s.tokens for s in sizes))
        if self.carried is not None:
            self.carried = self.carried._replace(new=self.carried.new + entry.tokens)
        group.messages += 1
        group.instructs = group.instructs or message.role == "system"
        if group.hidden is None:
            self.messages += 1
        spoken, answers = pair(entry, self._unique)
        for result in answers:
            self.turn_results.append(result.key)
            if group.hidden is None:
                self.results[result.key] = result
        if message.role == "user" and spoken and self._asks(message):
            self._begin_turn(entry)

    def _asks(self, message: Message) -> bool:
        """Whether a turn begins with it: what a client program adds on its own begins none."""
        if self.settings.renderer < LOOPS_IN_ROUNDS or self.newest_user is None:
            return True
        return speaks(message)

    def _new_round(self, message: Message) -> Round:
        group = self.groups[-1] if self.groups else None
        thinking = message.role == "assistant" and has_thinking(message)
        continues = (
            group is not None
            and group.hidden is None
            and message.role == "assistant"
            and self.joins(group, thinking=thinking)
        )
        if group is None or not continues:
            group = self.new_group()
        return self.new_round(group, thinking=thinking)

    def joins(self, group: Group, *, thinking: bool) -> bool:
        """Whether an assistant's next message, with signed thinking or without, belongs there."""
        return group.goes_on(thinking=thinking, whole=self.settings.renderer < LOOPS_IN_ROUNDS)

    def new_group(self) -> Group:
        group = Group(index=len(self.groups))
        self.groups.append(group)
        self.visible[group.index] = group
        return group

    def new_round(self, group: Group, *, thinking: bool) -> Round:
        group.thinking = group.thinking or thinking
        round = Round(group=group)
        group.rounds.append(round)
        self.rounds.append(round)
        return round

    def _unique(self, call_id: str) -> str:
        """The id itself, or one made from it where a visible call has it."""
        wire_id, n = call_id, 1
        while wire_id in self.wire_ids:
            n += 1
            wire_id = f"{call_id}_{n}"
        self.wire_ids.add(wire_id)
        return wire_id

    def _begin_turn(self, entry: Entry) -> None:
        group = entry.round.group
        self.newest_user, self.turn_start = entry, group.index
        self.rejection = self.rejection.passed_by()
        self.turn_results = self.turn_results.since(group.first)
        seen = group.hidden is None
        self.turn_bytes, self.turn_tokens = (group.bytes, group.tokens) if seen else (0, 0)

    def _grow(self, group: Group, bytes: int, tokens: int) -> None:
        group.bytes += bytes
        group.tokens += tokens
        if group.hidden is None:
            self._total(group, bytes, tokens)

    def _total(self, group: Group, bytes: int, tokens: int) -> None:
        self.bytes += bytes
        self.tokens += tokens
        if group.index >= self.turn_start:
            self.turn_bytes += bytes
            self.turn_tokens += tokens

    def _edit(self, seq: int, body: Edit) -> None:
        if body.op == "reveal":
            self._reveal(seq, body)
        elif body.part is not None:
            self.edit_part(seq, body, body.part)
        else:
            self._hide(seq, body)

    def edit_part(self, seq: int, edit: Edit, part: int) -> None:
        entry = self.entries.get(edit.first)
        if entry is None or part >= len(entry.message.parts):
            return
        before, carried = entry.shown(part), carried_over(self)
        if edit.op == "reveal":
            entry.edits.pop(part, None)
            entry.edited_by.pop(part, None)
        else:
            if self.recounted or edit.text == ERASED:
                edit = resized(edit, entry.message.parts[part], self.counter)
            entry.edits[part] = edit
            entry.edited_by[part] = seq
        after = entry.shown(part)
        entry.round.rendered = None
        self._grow(entry.round.group, after.bytes - before.bytes, after.tokens - before.tokens)
        if edit.op == "mask":
            self.results.pop((entry.seq, part), None)
        if entry.seq <= self.sent:
            self._break()
        if carried is not None and edit.op != "reveal" and self.anchor is None:
            came = came_with(edit, entry.message.parts[part], self.counter)
            self.carried = carried._replace(came=carried.came + came)

    def _hide(self, seq: int, edit: Edit) -> None:
        carried = carried_over(self)
        for group in self.between(edit.first, edit.last):
            # A span may reach over the newest user message: it names what lies around it.
            spared = any(group.first <= place <= group.last for place in edit.spares)
            if not (group.pinned or spared or self.protected(group)):
                self.hide_group(seq, edit, group)
        if edit.op == "summarise":
            self.summary, self.summary_by = edit, seq
        if edit.listed or edit.relists:
            self.words.add(edit, self.entries)
        self.recount_front()
        self._break()
        if carried is not None:
            self.carried = carried._replace(blocks=0) if edit.relists else carried

    def hide_group(self, seq: int, edit: Edit, group: Group) -> None:
        if group.hidden is not None:
            return  # what was dropped is in no later summary: the notice goes on counting it
        self._total(group, -group.bytes, -group.tokens)
        self.messages -= group.messages
        del self.visible[group.index]
        for result in group.results():
            self.results.pop(result.key, None)
        self.wire_ids.difference_update(call.wire_id for call in group.calls())
        group.hidden, group.hidden_by = edit, seq
        if edit.op == "drop":
            self.dropped.add(group)

    def _reveal(self, seq: int, edit: Edit) -> None:
        """Show what was named: its parts as they were said, and with it all of its group."""
        groups = around(self.groups, edit.first, edit.last)
        for entry in (entry for group in groups for entry in group.entries()):
            if not edit.first <= entry.seq <= edit.last:
                continue
            entry.revealed = entry.round.group.revealed = self.revealed = seq
            for part in [*entry.edits] if edit.part is None else [edit.part]:
                self.edit_part(seq, replace(edit, first=entry.seq, part=part), part)
        self.dropped.discard(groups)
        self.words.discard(entry.seq for group in groups for entry in group.entries())
        for group in [group for group in groups if group.hidden is not None]:
            group.hidden = None
            self.visible[group.index] = group
            self._total(group, group.bytes, group.tokens)
            self.messages += group.messages
            self._rename(group)
        visible = (result for group in self.visible.values() for result in group.results())
        seen = {r.key: r for r in visible if r.edited is None or r.edited.op != "mask"}
        self.results = dict(sorted(seen.items()))
        covered = self.summary
        if covered is not None and edit.first <= covered.first and covered.last <= edit.last:
            self.summary, self.summary_by = None, 0
        self.visible = dict(sorted(self.visible.items()))
        self.recount_front()
        self._break()

    def _rename(self, group: Group) -> None:
        """Calls that are seen again get other ids where theirs were given away meanwhile."""
        for round in group.rounds:
            round.rendered = None
            for call in round.calls:
                taken = call.wire_id in self.wire_ids
                call.wire_id = self._unique(call.id) if taken else call.wire_id
                self.wire_ids.add(call.wire_id)

    def between(self, first: int, last: int) -> list[Group]:
        """Groups that lie wholly within the positions."""
        return within(self.groups, first, last)

    def recount_front(self) -> None:
        before = self.front
        listed = self.words.size(self.counter, recall=self.settings.recall)
        told = front_size(self.counter, self.framed(self.summary), self.notice())
        self.told, self.front = told, plus(told, listed)
        self.bytes += self.front.bytes - before.bytes
        self.tokens += self.front.tokens - before.tokens

    def _pin(self, body: Pin) -> None:
        for seq in range(body.first, min(body.last, self.seq) + 1):
            entry = self.entries.get(seq)
            if entry is not None and entry.pinned != body.pinned:
                entry.pinned = body.pinned
                entry.round.group.pinned += 1 if body.pinned else -1

    def _rewind(self, body: Rewind) -> None:
        self._refold()
        self.rewinds.append((self.seq, body.to))
        self.sent = min(self.sent, body.to)
        self.cold = True
        self._break()

    def _refold(self) -> None:
        """Messages, edits and pins from the base on."""
        stays = (self.past, self.sent, self.version, self.anchor, self.started, self.rejection)
        carried = self.carried
        self._clear()
        unfold(self)
        for event in in_force(stays[0], self.seq):
            self.past = []
            self._fold(event)
        self.past, self.sent, self.version, self.anchor, self.started, self.rejection = stays
        self.carried = carried

    def checkpoint(self) -> Snapshot:
        """Let go of what is hidden, and start from here from now on."""
        self.rewinds = self.rewinds[-REWINDS:]
        self.base = snapshot_of(self)
        self.kept, self.past, self.keys = needed(self), [], {}
        self._refold()
        return self.base

    def _erase(self, events: list[Event]) -> None:
        """Scrub what a run of erases names, and fold once."""
        erases = [event.body for event in events if isinstance(event.body, Erase)]
        for event, body in zip(events, erases, strict=True):
            self.erased.append((body.message, body.message, body.part, event.seq))
        self._scrub(eraser(erases))
        self.version += len(erases) - 1

    def _forget(self, last: int) -> None:
        """Scrub all messages up to a position."""
        self.erased.append((1, last, None, self.seq))
        self._scrub(lambda event: scrub(event, 1, last))

    def _scrub(self, change: Callable[[Event], Event]) -> None:
        self.past = [change(event) for event in self.past]
        self.kept = {seq: change(event) for seq, event in self.kept.items()}
        self._refold()
        self._break()

    def _break(self) -> None:
        self.version += 1
        self.anchor = self.carried = None


def _regroups(before: Settings, now: Settings) -> bool:
    """Whether messages hold together otherwise from now on."""
    return (before.renderer < LOOPS_IN_ROUNDS) is not (now.renderer < LOOPS_IN_ROUNDS)
