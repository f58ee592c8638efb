"""What was hidden lately, by which edits, and how many tokens that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimtab.core.event import Edit, Event, Repair, Said, Turn
from trimtab.core.rejected import WHY
from trimtab.core.rewinding import holds
from trimtab.core.window import Window
from trimtab.stores.store import Store

REJECTED = "rejected"
NEAR = 500
"""Positions from the end of a log in which what was hidden last is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiding:
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
class _Hidden:
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


async def hidden_since(
    store: Store, session: str, window: Window, position: int, *, covered: int = 0
) -> list[Hiding]:
    """What edits behind a position hide now, by kind, the newest kind last.

    What was cut, cut again and then masked is masked, once; what was shown again since is not
    hidden. A summary names all that it stands for, from the first message on; what the one before
    it `covered`, by its last position, was hidden already and is not read again.
    """
    span = (position + 1, None)
    edits = {
        event.seq: event
        async for event in store.events(session, [span])
        if isinstance(event.body, Edit) and holds(event.seq, window.rewinds)
    }
    parts = [one for one in _parts(window) if one.by in edits]
    wholes = [one for one in _wholes(window) if one.by in edits]
    left = await _left_memory(store, session, window, list(edits.values()), covered)
    found: dict[str, list[_Hidden]] = {}
    for one in sorted((*parts, *wholes, *left), key=lambda one: (one.by, one.seq, one.part or 0)):
        found[one.op] = found.pop(one.op, [])  # a kind that comes again moves to the end
        found[one.op].append(one)
    return [_told(op, hidden, edits) for op, hidden in found.items()]


async def hidden_last(store: Store, session: str, window: Window) -> list[Hiding]:
    """What the newest turn that hid anything has hidden, if that was not long ago or undone."""
    start = max(0, window.seq - NEAR)
    turn = since = start
    summary = before = covered = start
    found = False
    async for event in store.events(session, [(start + 1, None)]):
        match event.body:
            case Turn(state="claimed"):
                turn, before = event.seq, summary
            case Edit() as edit if edit.op != "reveal" and holds(event.seq, window.rewinds):
                found, since, covered = True, turn, before
                summary = edit.last if edit.op == "summarise" else summary
            case _:
                pass
    if not found:
        return []
    return await hidden_since(store, session, window, since, covered=covered)


def _parts(window: Window) -> Iterator[_Hidden]:
    """The parts that are seen cut or masked."""
    for group in window.visible.values():
        for entry in group.entries():
            for part, edit in entry.edits.items():
                yield _Hidden(
                    op=REJECTED if edit.why.startswith(WHY) else edit.op,
                    by=entry.edited_by[part],
                    seq=entry.seq,
                    part=part,
                    # What stands for a short text that was rejected may be longer.
                    tokens=max(0, entry.sizes[part].tokens - entry.shown(part).tokens),
                )


def _wholes(window: Window) -> Iterator[_Hidden]:
    """The messages in memory that are not seen."""
    for group in window.groups:
        if group.hidden is None:
            continue
        for entry in group.entries():
            tokens = sum(size.tokens for size in entry.sizes)
            op, by = group.hidden.op, group.hidden_by
            yield _Hidden(op=op, by=by, seq=entry.seq, part=None, tokens=tokens)


async def _left_memory(
    store: Store, session: str, window: Window, edits: Sequence[Event], covered: int
) -> list[_Hidden]:
    """The messages that edits have hidden and that are in memory no more."""
    found: dict[int, _Hidden] = {}
    for event in edits:
        edit = event.body
        if not isinstance(edit, Edit) or edit.part is not None or edit.op == "reveal":
            continue
        first, last = edit.first, min(edit.last, window.gone_last)
        if edit.op == "summarise":
            first, covered = max(first, covered + 1), edit.last
        if first > last:
            continue
        async for said in store.events(session, [(first, last)]):
            body, seq = said.body, said.seq
            if not isinstance(body, Said | Repair) or seq in window.entries or seq in found:
                continue
            if holds(seq, window.rewinds):
                tokens = sum(size.tokens for size in body.sizes)
                found[seq] = _Hidden(op=edit.op, by=event.seq, seq=seq, part=None, tokens=tokens)
    return list(found.values())


def _told(op: str, hidden: Sequence[_Hidden], edits: dict[int, Event]) -> Hiding:
    newest = [one for one in hidden if one.by == hidden[-1].by]
    first, last = newest[0], newest[-1]
    if last.part is not None:
        handle = f"m{last.seq}.{last.part}"
    else:
        handle = f"m{first.seq}" if first is last else f"m{first.seq}-m{last.seq}"
    return Hiding(
        op=op,
        count=len(hidden),
        tokens=sum(one.tokens for one in hidden),
        handle=handle,
        at=edits[last.by].at,
    )
