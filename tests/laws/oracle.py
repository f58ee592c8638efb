"""The fold, written once more in the plainest way: the whole log, each time, from the start.

It shares the values and the token counter with the library, and none of its bookkeeping. Where the
two disagree, one of them is wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.laws.wires import plain
from trimtab.core.edits import ERASED
from trimtab.core.erase import scrub
from trimtab.core.event import (
    Call,
    Edit,
    Erase,
    Event,
    Outcome,
    Pin,
    Repair,
    Retention,
    Rewind,
    Said,
    Settings,
    Size,
)
from trimtab.core.message import (
    Media,
    Message,
    Opaque,
    Part,
    Text,
    ToolResult,
    message_from_json,
    message_to_json,
    text_message,
)
from trimtab.core.tokens import Counter, size_of, size_of_head, sizes_of

_HALF = re.compile(r"\\ud800")
"""The half of a pair that the lives know."""


@dataclass
class Round:
    """Messages that belong together, and the results in it by the call they answer."""

    seqs: list[int] = field(default_factory=list[int])
    calls: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Position and part of each call."""
    answers: list[tuple[int, int] | None] = field(default_factory=list[tuple[int, int] | None])
    """Position and part of what answers the call of the same index."""
    group: int = 0


@dataclass
class Told:
    """What a log says."""

    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    rounds: list[Round] = field(default_factory=list[Round])
    groups: list[list[int]] = field(default_factory=list[list[int]])
    thinking: list[bool] = field(default_factory=list[bool])
    edits: dict[tuple[int, int], Edit] = field(default_factory=dict[tuple[int, int], Edit])
    hidden: dict[int, Edit] = field(default_factory=dict[int, Edit])
    """By group: the drop or summary that hides it."""
    pinned: set[int] = field(default_factory=set[int])
    revealed: dict[int, int] = field(default_factory=dict[int, int])
    """By message: the position at which it was last asked for."""
    replied: int = 0
    notes: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Results that answer nothing."""
    summary: Edit | None = None
    newest_user: int | None = None
    paused: bool = False
    """Whether the last message is a reply that goes on in the next."""

    def group_of(self, seq: int) -> int:
        return next(i for i, seqs in enumerate(self.groups) if seq in seqs)

    def protected(self, group: int) -> bool:
        return group == len(self.groups) - 1 or self.newest_user in self.groups[group]

    def fixed(self, group: int) -> bool:
        """Whether nothing may hide the group."""
        return self.protected(group) or any(seq in self.pinned for seq in self.groups[group])

    def unread(self, group: int) -> bool:
        """Whether it was revealed and the model has not spoken since."""
        return any(self.revealed.get(seq, 0) > self.replied for seq in self.groups[group])

    def visible(self) -> list[Round]:
        return [round for round in self.rounds if round.group not in self.hidden]

    def shown(self, seq: int, part: int) -> Part:
        said = self.messages[seq].parts[part]
        edit = self.edits.get((seq, part))
        return said if edit is None else under(said, edit)

    def dropped(self) -> list[int]:
        groups = [g for g, edit in self.hidden.items() if edit.op == "drop"]
        return sorted(seq for group in groups for seq in self.groups[group])

    def front(self, recall: bool) -> list[str]:
        """Summary and notice."""
        texts: list[str] = []
        if self.summary is not None and self.summary.text:
            first, last = self.summary.first, self.summary.last
            span = f"m{first}" if first == last else f"m{first}-m{last}"
            handle = f" · recall {span}" if recall else ""
            texts.append(
                "[Summary of the earlier conversation, for reference: the newest user message wins"
                f"{handle}]\n{self.summary.text}"
            )
        if gone := self.dropped():
            handle = f" · recall m{gone[0]}-m{gone[-1]}" if recall else ""
            texts.append(f"[conversation truncated — {len(gone)} older messages omitted{handle}]")
        return [text.replace("\ud800", "\ufffd") for text in texts]


def under(part: Part, edit: Edit) -> Part:
    """The part as the model is to see it."""
    if isinstance(part, ToolResult):
        rest = tuple(inner for inner in part.content if not isinstance(inner, Text))
        rest = rest if edit.op == "truncate" and (edit.head or edit.tail) else ()
        text = edit.text if edit.op == "mask" else _cut(part.text, edit)
        extra = part.extra if edit.op == "truncate" else None
        is_plain = (part.plain and not rest) or edit.op == "mask"
        return replace(part, content=(Text(text=text), *rest), plain=is_plain, extra=extra)
    if isinstance(part, Text):
        return replace(part, text=edit.text if edit.op == "mask" else _cut(part.text, edit))
    return Text(text=edit.text)


_whole: dict[int, tuple[Message, Message]] = {}


def sendable(message: Message) -> Message:
    """The message without halves of surrogate pairs, of which no wire carries any."""
    if id(message) not in _whole:
        if len(_whole) > 1_000:
            _whole.clear()
        text = json.dumps(message_to_json(message))
        changed = message_from_json(json.loads(_HALF.sub("\ufffd", text)))
        _whole[id(message)] = (message, changed if _HALF.search(text) else message)
    return _whole[id(message)][1]


def _cut(text: str, edit: Edit) -> str:
    if edit.text == ERASED:
        return ERASED
    return text[: edit.head] + edit.text + (text[-edit.tail :] if edit.tail else "")


def effective(events: Sequence[Event]) -> list[Event]:
    """The events that count: payloads erased, rewinds carried out."""
    log: list[Event] = []
    for event in events:
        match event.body:
            case Erase() as body:
                log = [scrub(e, body.message, body.message, body.part) for e in log]
            case Retention() as body:
                log = [scrub(e, 1, body.before - 1) for e in log]
            case _:
                pass
        log.append(event)
    return list(_live(log, len(log)))


def _live(log: Sequence[Event], to: int) -> Iterator[Event]:
    last = next((e for e in reversed(log[:to]) if isinstance(e.body, Rewind)), None)
    if last is None or not isinstance(last.body, Rewind):
        yield from log[:to]
        return
    yield from _live(log, last.body.to)
    yield from log[last.seq : to]


def tell(events: Sequence[Event]) -> Told:
    """What the log says now."""
    told = Told()
    for event in effective(events):
        match event.body:
            case Said() | Repair() as body:
                _say(told, event.seq, sendable(body.message))
                told.paused = isinstance(body, Said) and body.paused
            case Edit(part=int()) as named:
                body = replace(named, text=named.text.replace("\ud800", "\ufffd"))
                assert body.part is not None
                message = told.messages.get(body.first)
                if message is None or body.part >= len(message.parts):
                    continue
                told.edits.pop((body.first, body.part), None)
                if body.op != "reveal":
                    told.edits[body.first, body.part] = body
                else:
                    told.revealed[body.first] = event.seq
                    told.hidden.pop(told.group_of(body.first), None)
                    _without_summary(told, body)
            case Edit() as body:
                _edit_groups(told, event.seq, body)
            case Pin() as body:
                named = {s for s in told.messages if body.first <= s <= body.last}
                told.pinned = told.pinned | named if body.pinned else told.pinned - named
            case _:
                pass
    return told


def _say(told: Told, seq: int, message: Message) -> None:
    told.messages[seq] = message
    told.replied = seq if message.role == "assistant" else told.replied
    last = told.rounds[-1] if told.rounds else None
    if last is None or None not in last.answers:
        last = _new_round(told, message, last)
    last.seqs.append(seq)
    told.groups[last.group].append(seq)
    spoken = not message.parts
    for index, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            _answer(told, last, seq, index, part)
        elif message.role != "assistant" or part not in message.calls:
            spoken = True
        else:
            last.calls.append((seq, index))
            last.answers.append(None)
    if message.role == "user" and spoken:
        told.newest_user = seq


def _answer(told: Told, round: Round, seq: int, index: int, part: ToolResult) -> None:
    for number, (asked, place) in enumerate(round.calls):
        call = told.messages[asked].parts[place]
        if round.answers[number] is None and getattr(call, "id", None) == part.call_id:
            round.answers[number] = (seq, index)
            return
    told.notes.add((seq, index))


def _new_round(told: Told, message: Message, last: Round | None) -> Round:
    thinks = message.role == "assistant" and any(
        isinstance(part, Opaque) and part.thinking for part in message.parts
    )
    joins = (
        last is not None
        and message.role == "assistant"
        and (told.paused or (bool(last.calls) and (thinks or told.thinking[-1])))
        and len(told.groups) - 1 not in told.hidden
    )
    if not joins:
        told.groups.append([])
        told.thinking.append(False)
    told.thinking[-1] = told.thinking[-1] or thinks
    made = Round(group=len(told.groups) - 1)
    told.rounds.append(made)
    return made


def _edit_groups(told: Told, at: int, edit: Edit) -> None:
    if edit.op == "reveal":
        for seq in [seq for seq in told.messages if edit.first <= seq <= edit.last]:
            told.revealed[seq] = at
            told.hidden.pop(told.group_of(seq), None)
            told.edits = {place: each for place, each in told.edits.items() if place[0] != seq}
        _without_summary(told, edit)
        return
    for group, seqs in enumerate(told.groups):
        if not (edit.first <= seqs[0] and seqs[-1] <= edit.last):
            continue
        if told.fixed(group) or group in told.hidden:
            continue  # no later summary tells of what was dropped
        if any(seq in seqs for seq in edit.spares):
            continue
        told.hidden[group] = edit
    if edit.op == "summarise":
        told.summary = edit


def _without_summary(told: Told, reveal: Edit) -> None:
    """A summary goes where all of which it tells is shown again."""
    summary = told.summary
    if summary is not None and reveal.first <= summary.first and summary.last <= reveal.last:
        told.summary = None


def settings_at(events: Sequence[Event]) -> Settings:
    return next(e.body for e in reversed(events) if isinstance(e.body, Settings))


def tokens_of(told: Told, settings: Settings, counter: Counter) -> int:
    """Of the messages that are seen, counted anew from their texts."""
    total = 0
    for text in told.front(settings.recall):
        total += sizes_of(text_message("user", text), counter)[0].tokens
    for round in told.visible():
        for seq in round.seqs:
            total += sum(tokens_of_parts(told, seq, counter))
    return total


_taken: dict[tuple[int, str], tuple[Message, tuple[Size, ...]]] = {}


def _sizes(message: Message, counter: Counter) -> tuple[Size, ...]:
    """Counting is most of the work, and messages do not change."""
    key = (id(message), counter.name)
    if key not in _taken:
        if len(_taken) > 1_000:
            _taken.clear()
        _taken[key] = (message, sizes_of(message, counter))
        assert all(size.tokens > 0 for size in _taken[key][1]), "something is sent for nothing"
    return _taken[key][1]


def tokens_of_parts(told: Told, seq: int, counter: Counter) -> list[int]:
    message = told.messages[seq]
    whole = _sizes(message, counter)
    return [
        size_of(told.shown(seq, part), counter).tokens if (seq, part) in told.edits else size.tokens
        for part, size in enumerate(whole)
    ]


def bound_of(events: Sequence[Event], call: Call, counter: Counter) -> int:
    """The declared upper bound of a call's input, from the log before it.

    The last usage that was reported for a request of which this one is a continuation, and what is
    new since, with the counter's margin; or all of it, with the larger margin, where there is none.
    """
    before = events[: call.position]
    settings = settings_at(before)
    told = tell(before)
    tail = counter.count(call.volatile) + 8 if call.volatile else 0
    messages = tokens_of(told, settings, counter)
    anchor, ratio = anchor_of(before)
    ratio = min(max(ratio, 1.0), 4.0)
    head = size_of_head(settings.system, settings.tools, counter, settings.params).tokens
    whole = math.ceil((head + messages + tail) * ratio * (1 + counter.unanchored))
    if anchor is None:
        return whole
    usage, position, rode = anchor
    known = tokens_of(tell(events[:position]), settings, counter)
    new = (max(0, messages - known) + tail) * ratio
    bound = math.ceil(usage + new + min(counter.anchored * (usage + new), counter.single * new))
    return min(bound, whole) if rode else bound


def anchor_of(events: Sequence[Event]) -> tuple[tuple[int, int, bool] | None, float]:
    """Reported input and position of the last call that is a prefix, whether it had a tail, and
    the learned ratio: that of the last call, or of all that came on top of another, older text
    counting for less."""
    anchor: tuple[int, int, bool] | None = None
    last: tuple[int, Call] | None = None
    whole = False
    ratio, counter = 1.0, ""
    fresh: list[tuple[float, float]] = []
    standing, served = 0, ("", "")
    for event in events:
        match event.body:
            case Call() as body:
                last, whole = (event.seq, body), True
            case Outcome() as body if last is not None and body.call == last[0]:
                if counted := counted_by(body, last[1]):
                    ratio = (counted + 500) / (last[1].tokens + 500)
                    if anchor:
                        fresh.append((counted - anchor[0], last[1].tokens - standing))
                    elif last[1].tokens > weights(fresh)[1]:
                        fresh.append((counted, last[1].tokens))
                    if whole:
                        anchor = (counted, last[1].position, bool(last[1].volatile))
                        standing = last[1].tokens
            case _:
                if breaks(event, last[1].position if last else 0):
                    anchor, whole = None, False
        if isinstance(event.body, Settings) and event.body.counter != counter:
            counter, ratio, fresh = event.body.counter, 1.0, []
        if isinstance(event.body, Settings):
            fresh = fresh if (event.body.model, event.body.dialect) == served else []
            served = event.body.model, event.body.dialect
        if isinstance(event.body, Rewind) and last is not None:
            last = (last[0], replace(last[1], position=min(last[1].position, event.body.to)))
    heavy, light = weights(fresh)
    return anchor, max(ratio, (heavy + 500) / (light + 500))


def weights(fresh: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Reported and estimated tokens of what was new: each counts for half of itself after 32,768
    tokens more, if they came at once."""
    told = [(min(max(0, counted), 4 * new), new) for counted, new in fresh if new > 0]
    share, heavy, light = 1.0, 0.0, 0.0
    for counted, new in reversed(told):
        heavy, light = heavy + share * counted, light + share * new
        share /= 1 + new / 32_768
    return heavy, light


def counted_by(outcome: Outcome, call: Call) -> int:
    """The input as the provider counted it, in its usage or in its refusal; 0 where it did not."""
    if outcome.usage is not None:
        return outcome.usage.input
    error = outcome.error or {}
    told = error.get("input", 0) if error.get("kind") == "overflow" else 0
    return told if told <= 4 * call.tokens else 0


def was_refused(events: Sequence[Event]) -> bool:
    """Whether the last outcome was a refusal for length that named a count; other errors aside."""
    calls = {e.seq: e.body for e in events if isinstance(e.body, Call)}
    ends = [
        e.body
        for e in events
        if isinstance(e.body, Outcome) and (e.body.error or {}).get("kind") in (None, "overflow")
    ]
    return bool(ends) and ends[-1].usage is None and counted_by(ends[-1], calls[ends[-1].call]) > 0


def breaks(event: Event, sent: int) -> bool:
    """Whether the event changes something that was sent."""
    match event.body:
        case Settings() | Rewind() | Erase() | Retention():
            return True
        case Edit() as edit:
            return edit.part is None or edit.op == "reveal" or edit.first <= sent
        case _:
            return False


def had_recall(events: Sequence[Event], edit: Edit) -> bool:
    """Whether the recall tools were there when the edit was made."""
    place = next(i for i, e in enumerate(events) if _same_edit(e.body, edit))
    return settings_at(events[:place]).recall


def _same_edit(body: object, edit: Edit) -> bool:
    """An erase may have taken the words of one of them."""
    if not isinstance(body, Edit):
        return False
    return replace(body, text=edit.text, head=edit.head, tail=edit.tail) == edit


def said_as(part: Part, *, note: bool) -> str | None:
    """The text of a part as a wire shows it; None for what is no text."""
    match part:
        case Text():
            return plain([part.text])
        case ToolResult():
            text = plain([inner.text for inner in part.content if isinstance(inner, Text)])
            return f"[late result of call {part.call_id}]\n{part.text}" if note else text
        case Media() | Opaque():
            return None
        case _:
            return part.arguments
