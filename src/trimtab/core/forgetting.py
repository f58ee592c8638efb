"""A window lets go of what is hidden, and is taken up again from what it kept.

A snapshot names the groups that are kept (all that is seen), the edits they are seen under and the
totals of what left memory. From it and the events it names the same window comes to be as from the
whole log: the same requests, the same decisions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.core.cache_meter import CacheMeter
from trimtab.core.calls import Anchor, Carried, Pending, Rejection
from trimtab.core.event import (
    Body,
    Call,
    Edit,
    Erase,
    Event,
    LeftOut,
    Listed,
    Pin,
    Repair,
    Retention,
    Rewind,
    Said,
    Sent,
    Settings,
    Usage,
    canonical,
)
from trimtab.core.message import Message
from trimtab.core.rounds import Dropped, Entry, Group, TurnResults, has_thinking
from trimtab.core.snapshot import Snapshot
from trimtab.core.summary_meter import SummaryMeter
from trimtab.core.user_words import Block, UserWords

if TYPE_CHECKING:
    from trimtab.core.window import Window

REWINDS = 256
"""Newest rewinds that are remembered."""

_PLAIN = (
    *("version", "epoch", "sent", "calls", "cold", "learned_limit", "ratio", "call_version"),
    *("awaiting", "recounted", "overflowed", "started", "paid"),
)
"""What a snapshot takes from a window as it is."""
_LATER = {"refused": False, "carried": None, "disbelieved": 0, "doubted": False}
"""The same, by the value that a snapshot of an older release stands for: it does not name them."""


class Forgotten(LookupError):
    """What this needs has left memory: fold the log again from before it."""

    def __init__(self, position: int) -> None:
        self.position = position
        """A fold from a snapshot at or before it has all that is needed."""
        super().__init__(f"what happened after position {position} is no longer in memory")


def refuse_forgotten(window: Window, body: Body) -> None:
    """Whether an event can be folded: some name what may have left memory."""
    match body:
        case Rewind() if body.to < window.base.seq:
            raise Forgotten(body.to)
        case Pin() if body.first == body.last and body.first in window.entries:
            pass
        case Edit(part=None, op="reveal") | Pin() if 0 < body.first <= window.gone_last:
            raise Forgotten(body.first - 1)
        case Edit(part=int()) if body.first not in window.entries:
            if 0 < body.first <= window.gone_last:
                raise Forgotten(body.first - 1)
        case Erase():
            _refuse_regrouping(window, body.message, body.message)
        case Retention():
            _refuse_regrouping(window, 1, body.before - 1)
        case _:
            pass


def left_memory(window: Window, seq: int) -> bool:
    """Whether a message that is not here may have stood at the position."""
    undone = any(to < seq < at for at, to in window.rewinds)
    return 0 < seq <= window.base.seq and (seq <= window.gone_last or undone)


def _refuse_regrouping(window: Window, first: int, last: int) -> None:
    """An erase may take what held a group together: then it is grouped anew, from its start."""
    for group in window.groups:
        if group.first > min(last, window.base.seq):
            return
        if len(group.rounds) > 1 and group.last >= first:
            raise Forgotten(group.first - 1)


def snapshot_of(window: Window) -> Snapshot:
    """The window's state, without what is hidden."""
    kept = [group for group in window.groups if _stays(window, group)]
    last = window.last_call
    by_edit = [seq for group in kept for entry in group.entries() for seq in _edited(entry)]
    hidden = [[group.first, group.hidden_by] for group in kept if group.hidden is not None]
    named = {entry.seq for group in kept for entry in group.entries()}
    named.update(by_edit, (by for _, by in hidden))
    summary = window.summary_by if window.summary is not None else None
    named.update(seq for seq in (summary, last.seq if last else None) if seq)
    named.update({window.settings_by} - {0})
    named.update(window.words.messages)
    state: dict[str, Any] = {
        **{name: getattr(window, name) for name in _PLAIN},
        "settings": window.settings_by,
        "last_call": last.seq if last else None,
        "noted": window.note is not None,
        "last_reply": [window.last_reply, window.last_reply_by],
        "replied": window.replied,
        "anchor": _trimmed(window.anchor),
        "weighed": window.weighed,
        "pending": _trimmed(window.pending),
        "cache": [window.cache.miss_rate, window.cache.expected, window.cache.reports],
        "last_usage": _usage(window.last_usage),
        "used": _usage(window.used),
        "summaries": window.summaries.to_json(),
        "erased": window.erased,
        "rewinds": window.rewinds,
        "groups": [[[e.seq for e in round.entries] for round in g.rounds] for g in kept],
        "wire": _wire_ids(kept),
        "edits": sorted(by_edit),
        "hidden": hidden,
        "pinned": [entry.seq for group in kept for entry in group.entries() if entry.pinned],
        "revealed": [[e.seq, e.revealed] for g in kept for e in g.entries() if e.revealed],
        "summary": summary,
        "turn": [window.turn_results.first, [*window.turn_results.last], window.turn_results.count],
        # Left out as a rule, so that a release that does not know of it reads all others.
        **({"rejection": window.rejection} if window.rejection.position else {}),
        **({"words": _blocks(window)} if window.words.blocks else {}),
        **{name: got for name, value in _LATER.items() if (got := getattr(window, name)) != value},
        **_gone(window, [group for group in window.groups if not _stays(window, group)]),
    }
    return Snapshot(seq=window.seq, spans=_spans(named), state=json.loads(canonical(state)))


def needed(window: Window) -> dict[int, Event]:
    """The events that the window's base names, by position."""
    known = {**window.kept, **{event.seq: event for event in window.past}}
    settings, last = window.settings, window.last_call
    known[window.settings_by] = Event(seq=window.settings_by, at=0.0, body=settings)
    if last is not None:
        known[last.seq] = Event(seq=last.seq, at=last.at, body=last.body)
    spans = window.base.spans
    return {seq: known[seq] for first, last in spans for seq in range(first, last + 1)}


def unfold(window: Window) -> None:
    """Put the messages of the base into a window that was cleared."""
    state, kept = window.base.state, window.kept
    if not state:
        return
    hidden = {seq for seq, _ in state["hidden"]}
    for shape in state["groups"]:
        group = window.new_group()
        for index, seqs in enumerate(shape):
            thinks = any(_thinks(kept[seq]) for seq in seqs)
            if index and shape[0][0] not in hidden and not window.joins(group, thinking=thinks):
                group = window.new_group()  # an older renderer has kept the loop whole
            round = window.new_round(group, thinking=thinks)
            for seq in seqs:
                window.admit(seq, _said(kept[seq]), round, kept[seq].at)
    for seq in state["edits"]:
        edit = _edit(kept[seq])
        if edit.part is not None:
            window.edit_part(seq, edit, edit.part)
    first = {group.first: group for group in window.groups}
    messages, start, end = state["dropped"]
    window.dropped = Dropped(messages, start, end)
    for seq, by in state["hidden"]:
        window.hide_group(by, _edit(kept[by]), first[seq])
    for seq in state["pinned"]:
        entry = window.entries[seq]
        entry.pinned = True
        entry.round.group.pinned += 1
    for seq, by in state["revealed"]:
        entry = window.entries[seq]
        entry.revealed = by
        entry.round.group.revealed = max(by, entry.round.group.revealed)
        window.revealed = max(by, window.revealed)
    if state["summary"] is not None:
        window.summary, window.summary_by = _edit(kept[state["summary"]]), state["summary"]
    _give_ids(window, {(seq, index): wire for seq, index, wire in state["wire"]})
    firsts, lasts, count = state["turn"]
    window.turn_results = TurnResults(_keys(firsts), _keys(lasts), count)
    window.last_reply, window.last_reply_by = state["last_reply"]
    window.replied = state["replied"]
    window.gone = {op: (count, tokens) for op, (count, tokens) in state["gone"].items()}
    window.gone_last = state["gone_last"]
    window.words = _words(window, state.get("words", []))
    window.recount_front()


def resume(window: Window, snapshot: Snapshot, events: Iterable[Event]) -> None:
    """Take a new window to where a snapshot was made."""
    by_seq = {event.seq: event for event in events if event.seq <= snapshot.seq}
    state = snapshot.state
    window.seq = snapshot.seq
    if state["settings"]:
        settings = by_seq[state["settings"]].body
        assert isinstance(settings, Settings)  # noqa: S101 - the snapshot names it so
        window.use(settings, state["settings"])
    if state["last_call"]:
        made = by_seq[state["last_call"]]
        assert isinstance(made.body, Call)  # noqa: S101 - the snapshot names it so
        window.last_call = Sent(seq=made.seq, at=made.at, body=made.body)
        window.note = made.body.note if state["noted"] else None
    window.base, window.kept = snapshot, by_seq
    for name in _PLAIN:
        setattr(window, name, state[name])
    unfold(window)
    for name in _PLAIN:
        setattr(window, name, state[name])
    window.anchor = None if state["anchor"] is None else Anchor(*state["anchor"])
    for name in ("refused", "disbelieved", "doubted"):
        setattr(window, name, state.get(name, _LATER[name]))
    carried = state.get("carried")
    window.carried = None if carried is None else Carried(*carried)
    window.pending = Pending(*state["pending"])
    heavy, light = state["weighed"]
    window.weighed = (heavy, light)
    miss_rate, expected, reports = state["cache"]
    window.cache = CacheMeter(miss_rate=miss_rate, expected=expected, reports=reports)
    window.last_usage = None if state["last_usage"] is None else _used(state["last_usage"])
    window.used = _used(state["used"])
    window.summaries = SummaryMeter.from_json(state["summaries"])
    window.erased = [(a, b, part, by) for a, b, part, by in state["erased"]]
    window.rewinds = [(at, to) for at, to in state["rewinds"]]
    window.rejection = Rejection(*state.get("rejection", ()))


def _stays(window: Window, group: Group) -> bool:
    return group.hidden is None or window.protected(group)


def _gone(window: Window, leaving: list[Group]) -> dict[str, Any]:
    """Totals of what is hidden and not kept, what left before included."""
    gone = dict(window.gone)
    drops: list[Group] = []
    for group in leaving:
        op = group.hidden.op if group.hidden is not None else ""
        count, tokens = gone.get(op, (0, 0))
        whole = sum(size.tokens for entry in group.entries() for size in entry.sizes)
        gone[op] = (count + group.messages, tokens + whole)
        drops += [group] if op == "drop" else []
    return {
        "gone": gone,
        "gone_last": max([window.gone_last, *(group.last for group in leaving)]),
        "dropped": window.dropped.without(drops),
    }


def _blocks(window: Window) -> list[Any]:
    """The list of the user's words, block by block: places, and what is left out."""
    return [[block.places, block.left_out] for block in window.words.blocks]


def _words(window: Window, blocks: list[Any]) -> UserWords:
    words, kept = UserWords(), window.kept
    for places, left_out in blocks:
        listed = [Listed(*place) for place in places]
        for place in listed:
            event = kept[place.seq]
            words.messages[place.seq] = (_said(event).message, event.at)
        words.blocks.append(
            Block(places=listed, left_out=None if left_out is None else LeftOut(*left_out))
        )
    return words


def _edited(entry: Entry) -> list[int]:
    return list(entry.edited_by.values())


def _wire_ids(kept: list[Group]) -> list[list[Any]]:
    """Ids that are sent other than their providers gave them: round, index there, id."""
    return [
        [round.entries[0].seq, index, call.wire_id]
        for group in kept
        for round in group.rounds
        for index, call in enumerate(round.calls)
        if call.wire_id != call.id
    ]


def _give_ids(window: Window, wire: Mapping[tuple[int, int], str]) -> None:
    window.wire_ids.clear()
    for round in window.rounds:
        for index, call in enumerate(round.calls):
            call.wire_id = wire.get((round.entries[0].seq, index), call.id)
            if round.group.hidden is None:
                window.wire_ids.add(call.wire_id)


def _spans(named: set[int]) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    for seq in sorted(named):
        if spans and spans[-1][1] == seq - 1:
            spans[-1] = (spans[-1][0], seq)
        else:
            spans.append((seq, seq))
    return tuple(spans)


def _trimmed(figures: Anchor | Pending | None) -> list[Any] | None:
    """Without the figures at the end that have their default: an older release knows fewer."""
    if figures is None:
        return None
    kept, names = [*figures], [*figures._fields]
    while names[-1] in figures._field_defaults and figures._field_defaults[names[-1]] == kept[-1]:
        kept.pop()
        names.pop()
    return kept


def _usage(usage: Usage | None) -> list[int] | None:
    if usage is None:
        return None
    return [usage.input, usage.output, usage.cache_read, usage.cache_write]


def _used(figures: list[int]) -> Usage:
    fresh, output, read, write = figures
    return Usage(input=fresh, output=output, cache_read=read, cache_write=write)


def _keys(pairs: list[list[int]]) -> list[tuple[int, int]]:
    return [(seq, part) for seq, part in pairs]


def _said(event: Event) -> Said | Repair:
    assert isinstance(event.body, Said | Repair)  # noqa: S101 - the snapshot names it so
    return event.body


def _edit(event: Event) -> Edit:
    assert isinstance(event.body, Edit)  # noqa: S101 - the snapshot names it so
    return event.body


def _thinks(event: Event) -> bool:
    message: Message = _said(event).message
    return message.role == "assistant" and has_thinking(message)
