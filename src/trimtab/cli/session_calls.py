"""The calls of a session: the newest few, and the one that is asked for by a name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.core.event import Call, Edit, Event, Outcome
from trimtab.stores.store import Store

_LAST = re.compile(r"last(?:-(\d+))?")
_NEAR = 500
"""Positions around one that is no call in which others are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One call, what it came to, and what was edited for it."""

    seq: int
    """Its position in the log."""
    at: float
    """Seconds since the epoch."""
    call: Call
    """What was recorded."""
    outcome: Outcome | None
    """How it ended; None where that is not known."""
    edits: dict[str, int] = field(default_factory=dict[str, int])
    """Edits since the call before it, by kind."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        outcome = self.outcome
        usage = outcome.usage if outcome is not None else None
        return {
            "call": self.seq,
            "at": self.at,
            "tokens": self.call.tokens,
            "bound": self.call.bound,
            "bytes": self.call.bytes,
            "hash": self.call.hash,
            "status": outcome.status if outcome is not None else None,
            "usage": asdict(usage) if usage is not None else None,
            "edits": self.edits,
        }


async def newest(store: Store, session: str, position: int, last: int) -> list[Made]:
    """The last so many calls, oldest first; the log is read from its end."""
    events: list[Event] = []
    first, size = position + 1 if last else 0, _NEAR
    # One more than asked for: the edits behind it belong to the next.
    while first > 1 and sum(isinstance(event.body, Call) for event in events) <= last:
        start = max(1, first - size)
        piece = [event async for event in store.events(session, [(start, first - 1)])]
        events, first, size = [*piece, *events], start, 2 * size
    return calls_in(events)[-last:] if last else []


def calls_in(events: Iterable[Event]) -> list[Made]:
    """Each call with the edits before it and the outcome behind it."""
    made: dict[int, Made] = {}
    edits: Counter[str] = Counter()
    for event in events:
        match event.body:
            case Edit(op=op):
                edits[op] += 1
            case Call() as call:
                made[event.seq] = Made(
                    seq=event.seq, at=event.at, call=call, outcome=None, edits=dict(edits)
                )
                edits.clear()
            case Outcome() as outcome if (one := made.get(outcome.call)) is not None:
                made[one.seq] = Made(
                    seq=one.seq, at=one.at, call=one.call, outcome=outcome, edits=one.edits
                )
            case _:
                pass
    return list(made.values())


async def chosen(store: Store, session: str, position: int, wanted: str) -> Made:
    """The call that somebody typed: a position, `last`, or `last-2`, two before it."""
    if (named := _LAST.fullmatch(wanted.strip().lower())) is not None:
        back = int(named[1] or 0)
        found = await newest(store, session, position, back + 1)
        if len(found) <= back:
            raise LookupError(
                f"session {session!r} has made {len(found):,} calls, so there is no {wanted}"
            )
        return found[0]
    if not wanted.strip().isdecimal():
        raise ValueError(
            f"{wanted!r} names no call; give its position as `trimtab session show` lists it, or "
            "last, or last-1 for the one before"
        )
    return await _at(store, session, position, int(wanted))


async def _at(store: Store, session: str, position: int, seq: int) -> Made:
    # Everything up to the call before it would tell its edits too, but nobody asked for them.
    around = (max(1, seq - _NEAR), seq + _NEAR)
    near = calls_in([event async for event in store.events(session, [around])])
    for made in near:
        if made.seq == seq:
            return made
    what = f"event {seq} is not a call" if seq <= position else f"there is no event {seq}"
    close = sorted(near, key=lambda made: abs(made.seq - seq))[:2]
    if not close:
        close = await newest(store, session, position, 1)
    hint = " or ".join(str(made.seq) for made in sorted(close, key=lambda made: made.seq))
    raise LookupError(
        f"{what} of session {session!r}, which has {position:,}; "
        + (f"the nearest: --call {hint}" if hint else "no call was made in it yet")
    )
