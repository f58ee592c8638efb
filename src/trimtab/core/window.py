"""The log folded: what the model sees now, the size of each part, and running totals.

A window is changed only by `apply(event)`. It never runs a policy: what is hidden was decided by
an event. All that a policy asks of it at every call is kept up to date, so that a call costs what
is new, whatever the length of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from trimtab.core.cache_meter import CacheMeter
from trimtab.core.edits import ERASED, omitted, summary_text, with_recall
from trimtab.core.erase import scrub
from trimtab.core.event import (
    Call,
    Edit,
    Erase,
    Event,
    Fork,
    Json,
    Outcome,
    Pin,
    Repair,
    Retention,
    Rewind,
    Said,
    Sent,
    Settings,
    Size,
    Turn,
    Usage,
    added,
)
from trimtab.core.message import Message, ToolCall, ToolResult, text_message
from trimtab.core.rewinding import in_force
from trimtab.core.rounds import Entry, Group, Pairing, Result, Round, has_thinking
from trimtab.core.tokens import Counter, piecewise, resized, sizes_of


class Window:
    """What the model sees now. Policies read it; only `apply` changes it."""

    def __init__(self, counters: Mapping[str, Counter] | None = None) -> None:
        self._counters = dict(counters or {})
        self.counter: Counter = self._named("")
        self.settings = Settings(model="", dialect="")
        self.seq = 0
        self.version = 0
        """Rises whenever something already sent is changed: the provider's cache ends there."""
        self.epoch = 0
        self.sent = 0
        """The last position that has been sent in a call."""
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
        self.learned_limit: int | None = None
        self.ratio = 1.0
        """Reported input over our estimate, at the last call that reported."""
        self.anchor: tuple[int, int] | None = None
        """Reported input of the last call and our estimate of its messages, if still a prefix."""
        self.erased: list[tuple[int, int, int | None, int]] = []
        """Erased ranges: first and last position, part or None for all, and the event's own."""
        self.rewinds: list[tuple[int, int]] = []
        """The position of each rewind, and where it went back to."""
        self.keys: dict[str, int] = {}
        """By the sender's idempotency key: the position of the message that came with it."""
        self.call_version = -1
        """The version at the last call: equal to `version` where its request is still a prefix."""
        self.awaiting: int | None = None
        """The position of the last call, until its outcome is known."""
        self._pending, self._recounted = (0, 0), False
        self._past: list[Event] = []
        self._clear()

    def _clear(self) -> None:
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
        self.turn_start = 0
        """Index of the group that holds the newest user message."""
        self.turn_bytes = 0
        self.turn_tokens = 0
        self.turn_results: list[Result] = []
        """All results since the newest user message, hidden or not."""
        self.last_reply: str | None = None
        """The provider's id of the newest reply."""
        self.summary: Edit | None = None
        self.dropped: dict[int, Group] = {}
        self.dropped_messages = 0
        self._dropped_first = self._dropped_last = 0
        self.front = Size(bytes=0, tokens=0)
        """Of summary and notice, which stand before the first kept message."""
        self._wire_ids: set[str] = set()

    def apply(self, event: Event) -> None:
        """Fold one more event."""
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} cannot follow position {self.seq}")
        self.seq = event.seq
        self._fold(event)

    def _fold(self, event: Event) -> None:
        match event.body:
            case Said() | Repair() as body:
                self._say(event, body)
            case Edit() as body:
                self._past.append(event)
                self._edit(body)
            case Call() as body:
                self._call(event, body)
            case Outcome() as body:
                self._outcome(body)
            case Settings() as body:
                self._settings(body)
            case Pin() as body:
                self._past.append(event)
                self._pin(body)
            case Rewind() as body:
                self._past.append(event)
                self._rewind(body)
            case Erase() as body:
                self._erase(body.message, body.message, body.part)
            case Retention() as body:
                self._erase(1, body.before - 1, None)
            case Turn() as body:
                self.epoch = max(self.epoch, body.epoch)
            case Fork():
                self.note = None

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
        return group.index == len(self.groups) - 1 or (
            self.newest_user is not None and group.index == self.turn_start
        )

    def notice(self) -> str:
        """What tells the model that messages were dropped; empty where none were."""
        if not self.dropped:
            return ""
        text = omitted(self.dropped_messages)
        if not self.settings.recall:
            return text
        return with_recall(text, f"m{self._dropped_first}-m{self._dropped_last}")

    def front_size(self, summary: str, notice: str) -> Size:
        """Size of what stands before the first kept message."""
        texts = [summary_text(summary)] if summary else []
        texts += [notice] if notice else []
        made = [sizes_of(text_message("user", text), self.counter)[0] for text in texts]
        return Size(bytes=sum(s.bytes for s in made), tokens=sum(s.tokens for s in made))

    def know(self, counter: Counter) -> None:
        """Make a counter known by its name, for settings that will ask for it."""
        self._counters[counter.name] = counter

    def _named(self, name: str) -> Counter:
        """The counter of that name: the caller's own, else the estimator it was taken with."""
        family = name.split("/")[1] if name.startswith("piecewise/") else None
        return self._counters.get(name) or piecewise(family)

    def _settings(self, body: Settings) -> None:
        counter = self.settings.counter
        self.settings = body
        if body.counter != counter:
            self._recounted = bool(self._past)
            self.counter, self.ratio = self._named(body.counter), 1.0
            self._refold()
        else:
            self._recount_front()
        for round in self.rounds:
            round.rendered = None
        self.cold = True
        self._break()

    def _say(self, event: Event, body: Said | Repair) -> None:
        self._past.append(event)
        counter = body.counter if isinstance(body, Said) else ""
        fits = counter == self.counter.name and len(body.sizes) == max(1, len(body.message.parts))
        sizes = body.sizes if fits else sizes_of(body.message, self.counter)
        entry = self._admit(event.seq, body.message, sizes)
        entry.repair = isinstance(body, Repair)
        if isinstance(body, Said):
            self.last_reply = body.reply_id or self.last_reply
            if body.key is not None:
                self.keys[body.key] = event.seq

    def _admit(self, seq: int, message: Message, sizes: tuple[Size, ...]) -> Entry:
        last = self.rounds[-1] if self.rounds else None
        round = last if last is not None and last.waiting else self._new_round(message)
        entry = Entry(seq=seq, message=message, sizes=sizes, round=round)
        self.entries[seq] = entry
        round.entries.append(entry)
        round.rendered = None
        group = round.group
        self._grow(group, sum(s.bytes for s in sizes), sum(s.tokens for s in sizes))
        group.messages += 1
        if group.hidden is None:
            self.messages += 1
        spoken = self._pair(entry, round)
        if message.role == "user" and spoken:
            self._begin_turn(entry)
        return entry

    def _new_round(self, message: Message) -> Round:
        group = self.groups[-1] if self.groups else None
        thinking = message.role == "assistant" and has_thinking(message)
        continues = (
            group is not None
            and group.hidden is None
            and message.role == "assistant"
            and (thinking or group.thinking)
            and bool(group.rounds[-1].calls)
        )
        if group is None or not continues:
            group = Group(index=len(self.groups))
            self.groups.append(group)
            self.visible[group.index] = group
        group.thinking = group.thinking or thinking
        round = Round(group=group)
        group.rounds.append(round)
        self.rounds.append(round)
        return round

    def _pair(self, entry: Entry, round: Round) -> bool:
        """Pair calls and results; True where the message says more than results."""
        spoken = not entry.message.parts
        for index, part in enumerate(entry.message.parts):
            if type(part) is ToolCall and entry.message.role == "assistant":
                pairing = Pairing(id=part.id, wire_id=self._unique(part.id), name=part.name)
                round.calls.append(pairing)
                round.waiting += 1
            elif type(part) is ToolResult:
                self._answer(entry, index, part, round)
            else:
                spoken = True
        return spoken

    def _answer(self, entry: Entry, index: int, part: ToolResult, round: Round) -> None:
        pairing = round.take(part.call_id)
        if pairing is None:
            entry.notes = (*entry.notes, index)
            return
        result = Result(entry=entry, part=index, tool=pairing.name, call=pairing)
        pairing.result = result
        round.waiting -= 1
        self.turn_results.append(result)
        if round.group.hidden is None:
            self.results[result.key] = result

    def _unique(self, call_id: str) -> str:
        """The id itself, or one made from it where an earlier call has it."""
        wire_id, n = call_id, 1
        while wire_id in self._wire_ids:
            n += 1
            wire_id = f"{call_id}_{n}"
        self._wire_ids.add(wire_id)
        return wire_id

    def _begin_turn(self, entry: Entry) -> None:
        group = entry.round.group
        self.newest_user = entry
        self.turn_start = group.index
        self.turn_results = [r for r in self.turn_results if r.entry.round.group is group]
        hidden = group.hidden is not None
        self.turn_bytes = 0 if hidden else group.bytes
        self.turn_tokens = 0 if hidden else group.tokens

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

    def _edit(self, body: Edit) -> None:
        if body.part is not None:
            self._edit_part(body, body.part)
        elif body.op == "reveal":
            self._reveal(body)
        else:
            self._hide(body)

    def _edit_part(self, edit: Edit, part: int) -> None:
        entry = self.entries.get(edit.first)
        if entry is None or part >= len(entry.message.parts):
            return
        before = entry.shown(part)
        if edit.op == "reveal":
            entry.edits.pop(part, None)
        else:
            if self._recounted or edit.text == ERASED:
                edit = resized(edit, entry.message.parts[part], self.counter)
            entry.edits[part] = edit
        after = entry.shown(part)
        entry.round.rendered = None
        self._grow(entry.round.group, after.bytes - before.bytes, after.tokens - before.tokens)
        if edit.op == "mask":
            self.results.pop((entry.seq, part), None)
        elif edit.op == "reveal":
            self._list_results()
        if entry.seq <= self.sent:
            self._break()

    def _hide(self, edit: Edit) -> None:
        for group in self.between(edit.first, edit.last):
            # A span may reach over the newest user message: it names what lies around it.
            if group.pinned or self.protected(group):
                continue
            if group.hidden is None:
                self._total(group, -group.bytes, -group.tokens)
                self.messages -= group.messages
                del self.visible[group.index]
                for result in group.results():
                    self.results.pop(result.key, None)
            elif edit.op == "drop":
                continue
            group.hidden = edit
            if edit.op == "drop":
                self._note_drop(group)
            else:
                self._undrop(group)
        if edit.op == "summarise":
            self.summary = edit
        self._recount_front()
        self._break()

    def _reveal(self, edit: Edit) -> None:
        for group in self.between(edit.first, edit.last):
            if group.hidden is None:
                continue
            if group.hidden.op == "drop":
                self._undrop(group)
            group.hidden = None
            self.visible[group.index] = group
            self._total(group, group.bytes, group.tokens)
            self.messages += group.messages
        covered = self.summary
        if covered is not None and edit.first <= covered.first and covered.last <= edit.last:
            self.summary = None
        self.visible = dict(sorted(self.visible.items()))
        self._list_results()
        self._recount_front()
        self._break()

    def _note_drop(self, group: Group) -> None:
        first = self._dropped_first if self.dropped else group.first
        self.dropped[group.index] = group
        self.dropped_messages += group.messages
        self._dropped_first = min(first, group.first)
        self._dropped_last = max(self._dropped_last, group.last)

    def _undrop(self, group: Group) -> None:
        if self.dropped.pop(group.index, None) is not None:
            self.dropped_messages -= group.messages
            self._dropped_first = min((g.first for g in self.dropped.values()), default=0)
            self._dropped_last = max((g.last for g in self.dropped.values()), default=0)

    def _list_results(self) -> None:
        self.results = {
            result.key: result
            for group in self.visible.values()
            for result in group.results()
            if result.edited is None or result.edited.op != "mask"
        }

    def between(self, first: int, last: int) -> Iterator[Group]:
        """Groups that lie wholly within the positions."""
        start = bisect_left(self.groups, first, key=lambda group: group.first)
        for index in range(start, len(self.groups)):
            group = self.groups[index]
            if group.last > last:
                return
            yield group

    def _recount_front(self) -> None:
        before = self.front
        summary = self.summary.text if self.summary else ""
        self.front = self.front_size(summary, self.notice())
        self.bytes += self.front.bytes - before.bytes
        self.tokens += self.front.tokens - before.tokens

    def _call(self, event: Event, body: Call) -> None:
        self.calls += 1
        self.cache.expected = self._expected_read(event.at)
        self.last_call = Sent(seq=event.seq, at=event.at, body=body)
        self.note = body.note
        self.cold = False
        self.sent = body.position
        self.call_version = self.version
        self.awaiting = event.seq
        self._pending = (self.tokens, body.tokens)

    def _outcome(self, body: Outcome) -> None:
        if body.error is not None and body.error.get("kind") == "overflow":
            limit = body.error.get("limit")
            if isinstance(limit, int) and limit > 0:
                self.learned_limit = limit
        if body.call != self.awaiting:
            return
        self.awaiting = None
        usage = body.usage
        if usage is None or usage.input <= 0:
            return
        self.cache.hear(usage, int(self.settings.entry.get("cache_minimum", 0)))
        self.last_usage = usage
        self.used = added(self.used, usage)
        tokens, estimate = self._pending
        if estimate > 0:
            self.ratio = usage.input / estimate
        if self.call_version == self.version:
            self.anchor = (usage.input, tokens)

    def _expected_read(self, at: float) -> int:
        """Tokens that the provider's cache should hold for the call being made."""
        last = self.last_call
        ttl = float(self.settings.entry.get("cache_ttl", 0))
        warm = last is not None and at - last.at <= ttl and self.call_version == self.version
        return self.last_usage.input if warm and self.last_usage and not self.cold else 0

    def _pin(self, body: Pin) -> None:
        for group in self._touching(body.first, body.last):
            for entry in group.entries():
                if body.first <= entry.seq <= body.last and entry.pinned != body.pinned:
                    entry.pinned = body.pinned
                    group.pinned += 1 if body.pinned else -1

    def _touching(self, first: int, last: int) -> Iterable[Group]:
        seen: dict[int, Group] = {}
        for seq in range(first, min(last, self.seq) + 1):
            entry = self.entries.get(seq)
            if entry is not None:
                seen[entry.round.group.index] = entry.round.group
        return seen.values()

    def _rewind(self, body: Rewind) -> None:
        self._refold()
        self.rewinds.append((self.seq, body.to))
        self.sent = min(self.sent, body.to)
        self.cold = True
        self._break()

    def _refold(self) -> None:
        """Messages, edits and pins from the start."""
        past, sent, version = self._past, self.sent, self.version
        self._clear()
        for event in in_force(past, self.seq):
            self._past = []
            self._fold(event)
        self._past, self.sent, self.version = past, sent, version

    def _erase(self, first: int, last: int, part: int | None) -> None:
        self.erased.append((first, last, part, self.seq))
        self._past = [scrub(event, first, last, part) for event in self._past]
        self._refold()
        self._break()

    def _break(self) -> None:
        self.version += 1
        self.anchor = None
