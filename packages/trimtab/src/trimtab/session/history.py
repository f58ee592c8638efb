"""What was sent, and why something was not, answered from the store long after.

Also what was hidden recently, by which edits, and how many tokens that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.dialects.outgoing import rebuild_request_from_window, require_call
from trimtab.engine.log.edits import REJECTED_REASON, HandleTarget, parse_handle
from trimtab.engine.log.event import Edit, Event, MessageAdded, ToolResultRepair, TurnProgressRecord
from trimtab.engine.log.message import Message
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.engine.recall.tools import build_unknown_handle_error
from trimtab.engine.recall.visibility import (
    VisibilityReason,
    add_event_time_and_reason,
    explain_message_visibility,
)
from trimtab.engine.window.window import Window
from trimtab.session.loading import load_window_at
from trimtab.stores.base import Store


async def rebuild_request_from_store(
    store: Store, session_id: str, call_seq: int
) -> dict[str, Any]:
    """Rebuild the exact request of a past call, and check it against the recorded hash."""
    events = [event async for event in store.events(session_id, [(call_seq, call_seq)])]
    call = require_call(events[0] if events else None, call_seq)
    return rebuild_request_from_window(
        await load_window_at(store, session_id, call.position), call_seq, call
    )


async def explain_visibility(store: Store, session_id: str, handle: str) -> VisibilityReason:
    """Explain why the model does or does not see something."""
    target = parse_handle(handle)
    position = await store.position(session_id)
    message = await _read_named_message(store, session_id, target)
    if not 0 < target.first_seq <= position:
        raise build_unknown_handle_error(handle, position)
    # From before it was said on, so that it is still in memory however it was hidden.
    window = await load_window_at(store, session_id, position, keep_after=target.first_seq - 1)
    reason = explain_message_visibility(window, handle, message)
    if reason.event is None:
        return reason
    span = (reason.event, reason.event)
    decisions = [event async for event in store.events(session_id, [span])]
    return add_event_time_and_reason(reason, decisions[0])


async def explain_visibility_by_part(
    store: Store, session_id: str, handle: str
) -> list[VisibilityReason]:
    """Explain the same, with one result for each part of a message whose parts differ."""
    whole = await explain_visibility(store, session_id, handle)
    if "-" in handle:
        return [whole]
    parts = [await explain_visibility(store, session_id, part) for part in whole.parts]
    return parts or [whole]


async def _read_named_message(
    store: Store, session_id: str, target: HandleTarget
) -> Message | None:
    """Return the first message that a handle names, or None."""
    span = (target.first_seq, target.first_seq)
    bodies = [event.body async for event in store.events(session_id, [span])]
    if not bodies or not isinstance(bodies[0], MessageAdded | ToolResultRepair):
        return None
    return bodies[0].message


REJECTED_OP = "rejected"
MAX_LOOKBACK_EVENTS = 500
"""How many positions from the end of a log are searched for what was hidden last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTotals:
    """What edits of one kind have hidden recently and still hide."""

    op: str
    """The kind of edit: `truncate`, `mask`, `summarise` or `drop`; `rejected` for a mask of content
    that the provider rejected."""
    count: int
    """How many parts it hides, or messages for `summarise` and `drop`. Each counts once."""
    tokens: int
    """Estimated tokens that these would need in addition if they were shown in full."""
    handle: str
    """The handle that recalls the newest of them."""
    at: float
    """When the newest edit was made, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HiddenItem:
    """One part, or one message, as it is hidden now."""

    op: str
    """The kind of edit that hides it."""
    by: int
    """The position of that edit."""
    seq: int
    """The message's position."""
    part: int | None
    """The part's index; None for the whole message."""
    tokens: int
    """Estimated tokens that it would need in addition if it were shown in full."""


async def total_hidden_since_by_edit_kind(
    store: Store,
    session_id: str,
    window: Window,
    after_position: int,
    *,
    already_summarised_until: int = 0,
) -> list[HiddenTotals]:
    """Return what edits after a position hide now, by kind, the newest kind last.

    A part that was cut and then masked counts once, as masked. What was shown again since is not
    hidden. A summary names everything that it replaces, from the first message on. Messages up to
    `already_summarised_until` were hidden before and are not read again.
    """
    span = (after_position + 1, None)
    edits = {
        event.seq: event
        async for event in store.events(session_id, [span])
        if isinstance(event.body, Edit) and is_event_in_force(event.seq, window.base.rewinds)
    }
    parts = [one for one in _iter_hidden_parts(window) if one.by in edits]
    wholes = [one for one in _iter_hidden_messages(window) if one.by in edits]
    evicted_messages = await _read_evicted_messages(
        store, session_id, window, list(edits.values()), already_summarised_until
    )
    messages_by_op: dict[str, list[_HiddenItem]] = {}
    for one in sorted(
        (*parts, *wholes, *evicted_messages), key=lambda one: (one.by, one.seq, one.part or 0)
    ):
        messages_by_op[one.op] = messages_by_op.pop(
            one.op, []
        )  # a kind that comes again moves to the end
        messages_by_op[one.op].append(one)
    return [_sum_hidden(op, messages, edits) for op, messages in messages_by_op.items()]


async def total_hidden_by_last_turn(
    store: Store, session_id: str, window: Window
) -> list[HiddenTotals]:
    """Return what the newest turn that hid anything has hidden, if it is recent and was not
    undone."""
    start = max(0, window.seq - MAX_LOOKBACK_EVENTS)
    turn = since = start
    summary = before = summary_end = start
    has_edits = False
    async for event in store.events(session_id, [(start + 1, None)]):
        match event.body:
            case TurnProgressRecord(state="claimed"):
                turn = event.seq
                before = summary
            case Edit() as edit if edit.op != "reveal" and is_event_in_force(
                event.seq, window.base.rewinds
            ):
                has_edits = True
                since = turn
                summary_end = before
                summary = edit.last if edit.op == "summarise" else summary
            case _:
                pass
    if not has_edits:
        return []
    return await total_hidden_since_by_edit_kind(
        store, session_id, window, since, already_summarised_until=summary_end
    )


def _iter_hidden_parts(window: Window) -> Iterator[_HiddenItem]:
    """Yield the parts that the model sees cut or masked."""
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
    """Yield the messages in memory that the model does not see."""
    for group in window.conversation.groups:
        if group.hidden is None:
            continue
        for entry in group.entries():
            tokens = sum(size.tokens for size in entry.sizes)
            op = group.hidden.op
            by = group.hidden_by
            yield _HiddenItem(op=op, by=by, seq=entry.seq, part=None, tokens=tokens)


async def _read_evicted_messages(
    store: Store, session_id: str, window: Window, edits: Sequence[Event], summarised_until: int
) -> list[_HiddenItem]:
    """Yield the hidden messages that are no longer in memory."""
    messages_by_seq: dict[int, _HiddenItem] = {}
    for event in edits:
        edit = event.body
        if not isinstance(edit, Edit) or edit.part is not None or edit.op == "reveal":
            continue
        first = edit.first
        last = min(edit.last, window.base.last_evicted_seq)
        if edit.op == "summarise":
            first = max(first, summarised_until + 1)
            summarised_until = edit.last
        if first > last:
            continue
        async for message_event in store.events(session_id, [(first, last)]):
            body = message_event.body
            seq = message_event.seq
            if (
                not isinstance(body, MessageAdded | ToolResultRepair)
                or seq in window.entries
                or seq in messages_by_seq
            ):
                continue
            if is_event_in_force(seq, window.base.rewinds):
                tokens = sum(size.tokens for size in body.sizes)
                messages_by_seq[seq] = _HiddenItem(
                    op=edit.op, by=event.seq, seq=seq, part=None, tokens=tokens
                )
    return list(messages_by_seq.values())


def _sum_hidden(op: str, hidden: Sequence[_HiddenItem], edits: dict[int, Event]) -> HiddenTotals:
    newest = [one for one in hidden if one.by == hidden[-1].by]
    first = newest[0]
    last = newest[-1]
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
