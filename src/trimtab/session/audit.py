"""What was sent, and why something was not: answered from the store, long after.

What was hidden lately, by which edits, and how many tokens that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.log.edits import Handle, parse_handle
from trimtab.log.event import Edit, Event, MessageAdded, ToolResultRepair, TurnStateChange
from trimtab.log.message import Message
from trimtab.log.rewind import find_undoing_rewind, is_event_in_force
from trimtab.policy.provider_rejections import REJECTED_REASON
from trimtab.recall.tools import build_unknown_handle_error, recall_text, recall_text_from_messages
from trimtab.request import rebuild_request_from_window, require_call
from trimtab.session.loading import load_window_at
from trimtab.stores.base import Store
from trimtab.window.window import Window

STATE_DESCRIPTIONS = {
    "shown": "is in the context, as it was said",
    "truncated": "is in the context, but cut",
    "masked": "is not in the context: a placeholder stands in its place",
    "summarised": "is not in the context: a summary tells of it",
    "dropped": "is not in the context: it was dropped, and a notice says so",
    "listed": "is in the context, in the list of the user's earlier messages",
    "undone": "is not in the context: a rewind has undone it",
    "erased": "is not in the context: its text was erased and cannot be shown",
}
"""What a person is told of each state that something may be in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityReason:
    """Why the model sees something as it does."""

    handle: str
    """What was asked about."""
    state: str
    """One of `STATE_DESCRIPTIONS`."""
    since: float | None = None
    """When that was decided, in seconds since the epoch; None where nothing was."""
    event: int | None = None
    """The position of the edit, the rewind or the erasure; None where nothing was decided."""
    why: str = ""
    """The rule that decided it, with its numbers."""
    stands: str = ""
    """What the model sees in its place; empty for nothing."""
    text: str = ""
    """What was said; empty where it was erased."""


async def rebuild_request_from_store(
    store: Store, session_id: str, call_seq: int
) -> dict[str, Any]:
    """The exact request of a past call, checked against its hash."""
    found = [event async for event in store.events(session_id, [(call_seq, call_seq)])]
    call = require_call(found[0] if found else None, call_seq)
    return rebuild_request_from_window(
        await load_window_at(store, session_id, call.position), call_seq, call
    )


async def explain_visibility(store: Store, session_id: str, handle: str) -> VisibilityReason:
    """Why something is not in the context, since when, and by which edit."""
    named = parse_handle(handle)
    position = await store.position(session_id)
    message = await _read_named_message(store, session_id, named)
    if not 0 < named.first <= position:
        raise build_unknown_handle_error(handle, position)
    # From before it was said on, so that it is still in memory however it was hidden.
    window = await load_window_at(store, session_id, position, keep_after=named.first - 1)
    if message is None or (named.part or 0) >= max(1, len(message.parts)):
        raise build_unknown_handle_error(handle, position, window.entries, message)
    gone = window.base.find_erasing_event(named.first, named.part)
    if gone is not None:
        return await _add_deciding_event(
            store, session_id, VisibilityReason(handle=handle, state="erased", event=gone)
        )
    entry = window.entries.get(named.first)
    if entry is None:
        text = recall_text_from_messages(window, handle, {named.first: message})
        undone = find_undoing_rewind(named.first, window.base.rewinds)
        by, reason = (undone[0], f"rewound to {undone[1]}") if undone else (None, "")
        found = VisibilityReason(handle=handle, state="undone", event=by, why=reason, text=text)
        return await _add_deciding_event(store, session_id, found)
    text = recall_text(window, handle)
    part = 0 if named.part is None and len(entry.message.parts) == 1 else named.part
    group = entry.round.group
    edit, by = group.hidden, group.hidden_by
    if edit is None and part is not None:
        edit, by = entry.edits.get(part), entry.edited_by.get(part, 0)
    if edit is None:
        return VisibilityReason(handle=handle, state="shown", text=text)
    stands = _text_in_place_of(window, edit)
    state = _STATE_BY_OP[edit.op]
    if group.hidden is not None and (
        listed := window.conversation.user_words.render_message(named.first, part)
    ):
        state, stands = "listed", listed
    found = VisibilityReason(
        handle=handle, state=state, event=by, why=edit.why, stands=stands, text=text
    )
    return await _add_deciding_event(store, session_id, found)


_STATE_BY_OP = {
    "truncate": "truncated",
    "mask": "masked",
    "summarise": "summarised",
    "drop": "dropped",
    "reveal": "shown",
}


def _text_in_place_of(window: Window, edit: Edit) -> str:
    match edit.op:
        case "drop":
            return window.conversation.dropped_notice()
        case "summarise":
            return window.summary.text if window.summary is not None else ""
        case _:
            return edit.text


async def _read_named_message(store: Store, session_id: str, named: Handle) -> Message | None:
    """The message that a handle names first; None where it names none."""
    span = (named.first, named.first)
    found = [event.body async for event in store.events(session_id, [span])]
    if not found or not isinstance(found[0], MessageAdded | ToolResultRepair):
        return None
    return found[0].message


async def _add_deciding_event(
    store: Store, session_id: str, reason: VisibilityReason
) -> VisibilityReason:
    """The same with what the event that decided it says of itself."""
    if reason.event is None:
        return reason
    span = (reason.event, reason.event)
    made = [event async for event in store.events(session_id, [span])]
    own: str = getattr(made[0].body, "why", "")
    return replace(reason, since=made[0].at, why=reason.why or own)


REJECTED_OP = "rejected"
MAX_LOOKBACK_EVENTS = 500
"""Positions from the end of a log in which what was hidden last is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTotals:
    """What edits of one kind have hidden lately, and hide now."""

    op: str
    """The kind of edit: `truncate`, `mask`, `summarise` or `drop`; `rejected` for a mask of what
    the provider did not take."""
    count: int
    """Parts that it hides, or messages for `summarise` and `drop`; each counts once."""
    tokens: int
    """Estimated, that these would take more if they were shown whole."""
    handle: str
    """By what the newest of them is recalled."""
    at: float
    """When the newest was made, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HiddenItem:
    """One part, or one message, as it is hidden now."""

    op: str
    """The kind of edit that it is hidden by."""
    by: int
    """The position of that edit."""
    seq: int
    """The message's position."""
    part: int | None
    """The part's index; None for the whole message."""
    tokens: int
    """Estimated, that it would take more if it were shown whole."""


async def list_hidden_since(
    store: Store, session_id: str, window: Window, position: int, *, summarised_until: int = 0
) -> list[HiddenTotals]:
    """What edits behind a position hide now, by kind, the newest kind last.

    What was cut, cut again and then masked is masked, once; what was shown again since is not
    hidden. A summary names all that it stands for, from the first message on; what the one before
    it `covered`, by its last position, was hidden already and is not read again.
    """
    span = (position + 1, None)
    edits = {
        event.seq: event
        async for event in store.events(session_id, [span])
        if isinstance(event.body, Edit) and is_event_in_force(event.seq, window.base.rewinds)
    }
    parts = [one for one in _iter_hidden_parts(window) if one.by in edits]
    wholes = [one for one in _iter_hidden_messages(window) if one.by in edits]
    left = await _read_evicted_messages(
        store, session_id, window, list(edits.values()), summarised_until
    )
    found: dict[str, list[_HiddenItem]] = {}
    for one in sorted((*parts, *wholes, *left), key=lambda one: (one.by, one.seq, one.part or 0)):
        found[one.op] = found.pop(one.op, [])  # a kind that comes again moves to the end
        found[one.op].append(one)
    return [_sum_hidden(op, hidden, edits) for op, hidden in found.items()]


async def list_hidden_by_last_turn(
    store: Store, session_id: str, window: Window
) -> list[HiddenTotals]:
    """What the newest turn that hid anything has hidden, if that was not long ago or undone."""
    start = max(0, window.seq - MAX_LOOKBACK_EVENTS)
    turn = since = start
    summary = before = covered = start
    found = False
    async for event in store.events(session_id, [(start + 1, None)]):
        match event.body:
            case TurnStateChange(state="claimed"):
                turn, before = event.seq, summary
            case Edit() as edit if edit.op != "reveal" and is_event_in_force(
                event.seq, window.base.rewinds
            ):
                found, since, covered = True, turn, before
                summary = edit.last if edit.op == "summarise" else summary
            case _:
                pass
    if not found:
        return []
    return await list_hidden_since(store, session_id, window, since, summarised_until=covered)


def _iter_hidden_parts(window: Window) -> Iterator[_HiddenItem]:
    """The parts that are seen cut or masked."""
    for group in window.visible_groups.values():
        for entry in group.entries():
            for part, edit in entry.edits.items():
                yield _HiddenItem(
                    op=REJECTED_OP if edit.why.startswith(REJECTED_REASON) else edit.op,
                    by=entry.edited_by[part],
                    seq=entry.seq,
                    part=part,
                    # What stands for a short text that was rejected may be longer.
                    tokens=max(0, entry.sizes[part].tokens - entry.shown_size(part).tokens),
                )


def _iter_hidden_messages(window: Window) -> Iterator[_HiddenItem]:
    """The messages in memory that are not seen."""
    for group in window.conversation.groups:
        if group.hidden is None:
            continue
        for entry in group.entries():
            tokens = sum(size.tokens for size in entry.sizes)
            op, by = group.hidden.op, group.hidden_by
            yield _HiddenItem(op=op, by=by, seq=entry.seq, part=None, tokens=tokens)


async def _read_evicted_messages(
    store: Store, session_id: str, window: Window, edits: Sequence[Event], summarised_until: int
) -> list[_HiddenItem]:
    """The messages that edits have hidden and that are in memory no more."""
    found: dict[int, _HiddenItem] = {}
    for event in edits:
        edit = event.body
        if not isinstance(edit, Edit) or edit.part is not None or edit.op == "reveal":
            continue
        first, last = edit.first, min(edit.last, window.base.last_evicted_seq)
        if edit.op == "summarise":
            first, summarised_until = max(first, summarised_until + 1), edit.last
        if first > last:
            continue
        async for said in store.events(session_id, [(first, last)]):
            body, seq = said.body, said.seq
            if (
                not isinstance(body, MessageAdded | ToolResultRepair)
                or seq in window.entries
                or seq in found
            ):
                continue
            if is_event_in_force(seq, window.base.rewinds):
                tokens = sum(size.tokens for size in body.sizes)
                found[seq] = _HiddenItem(
                    op=edit.op, by=event.seq, seq=seq, part=None, tokens=tokens
                )
    return list(found.values())


def _sum_hidden(op: str, hidden: Sequence[_HiddenItem], edits: dict[int, Event]) -> HiddenTotals:
    newest = [one for one in hidden if one.by == hidden[-1].by]
    first, last = newest[0], newest[-1]
    if last.part is not None:
        handle = f"m{last.seq}.{last.part}"
    else:
        handle = f"m{first.seq}" if first is last else f"m{first.seq}-m{last.seq}"
    return HiddenTotals(
        op=op,
        count=len(hidden),
        tokens=sum(one.tokens for one in hidden),
        handle=handle,
        at=edits[last.by].at,
    )
