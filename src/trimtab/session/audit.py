"""What was sent, and why something was not: answered from the store, long after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trimtab.core.edits import Handle, parse_handle
from trimtab.core.event import Edit, Repair, Said
from trimtab.core.message import Message
from trimtab.core.recall import erased_by, nothing_called, recall, recalled
from trimtab.core.rewinding import undone_by
from trimtab.core.window import Window
from trimtab.session.opening import window_at
from trimtab.stores.store import Store
from trimtab.wire import call_at, sent_in

SAID_OF = {
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
class Why:
    """Why the model sees something as it does."""

    handle: str
    """What was asked about."""
    state: str
    """One of `SAID_OF`."""
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


async def rebuild(store: Store, session: str, seq: int) -> dict[str, Any]:
    """The exact request of a past call, checked against its hash."""
    found = [event async for event in store.events(session, [(seq, seq)])]
    call = call_at(found[0] if found else None, seq)
    return sent_in(await window_at(store, session, call.position), seq, call)


async def why(store: Store, session: str, handle: str) -> Why:
    """Why something is not in the context, since when, and by which edit."""
    named = parse_handle(handle)
    position = await store.position(session)
    message = await _said(store, session, named)
    if not 0 < named.first <= position:
        raise nothing_called(handle, position)
    # From before it was said on, so that it is still in memory however it was hidden.
    window = await window_at(store, session, position, since=named.first - 1)
    if message is None or (named.part or 0) >= max(1, len(message.parts)):
        raise nothing_called(handle, position, window.entries, message)
    gone = erased_by(window, named.first, named.part)
    if gone is not None:
        return await _by(store, session, Why(handle=handle, state="erased", event=gone))
    entry = window.entries.get(named.first)
    if entry is None:
        text = recalled(window, handle, {named.first: message})
        undone = undone_by(named.first, window.rewinds)
        by, reason = (undone[0], f"rewound to {undone[1]}") if undone else (None, "")
        found = Why(handle=handle, state="undone", event=by, why=reason, text=text)
        return await _by(store, session, found)
    text = recall(window, handle)
    part = 0 if named.part is None and len(entry.message.parts) == 1 else named.part
    group = entry.round.group
    edit, by = group.hidden, group.hidden_by
    if edit is None and part is not None:
        edit, by = entry.edits.get(part), entry.edited_by.get(part, 0)
    if edit is None:
        return Why(handle=handle, state="shown", text=text)
    stands = _stands(window, edit)
    state = _STATES[edit.op]
    if group.hidden is not None and (listed := window.words.shown(named.first, part)):
        state, stands = "listed", listed
    found = Why(handle=handle, state=state, event=by, why=edit.why, stands=stands, text=text)
    return await _by(store, session, found)


_STATES = {
    "truncate": "truncated",
    "mask": "masked",
    "summarise": "summarised",
    "drop": "dropped",
    "reveal": "shown",
}


def _stands(window: Window, edit: Edit) -> str:
    match edit.op:
        case "drop":
            return window.notice()
        case "summarise":
            return window.summary.text if window.summary is not None else ""
        case _:
            return edit.text


async def _said(store: Store, session: str, named: Handle) -> Message | None:
    """The message that a handle names first; None where it names none."""
    span = (named.first, named.first)
    found = [event.body async for event in store.events(session, [span])]
    if not found or not isinstance(found[0], Said | Repair):
        return None
    return found[0].message


async def _by(store: Store, session: str, found: Why) -> Why:
    """The same with what the event that decided it says of itself."""
    if found.event is None:
        return found
    span = (found.event, found.event)
    made = [event async for event in store.events(session, [span])]
    own: str = getattr(made[0].body, "why", "")
    return replace(found, since=made[0].at, why=found.why or own)
