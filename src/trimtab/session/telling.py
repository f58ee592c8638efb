"""What a turn knows of itself, told to those who count: its calls, its edits, its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Literal

from trimtab.core.event import Edit
from trimtab.core.guard import CannotFit
from trimtab.core.prices import cost_of
from trimtab.core.window import Window
from trimtab.providers.provider import ProviderError
from trimtab.session.happenings import BrokeOff, CallBegan, CallEnded, Edited, TurnBegan
from trimtab.session.hiding import REJECTED, hidden_since
from trimtab.session.session import Session
from trimtab.session.tools import Tell
from trimtab.stores.errors import StaleOwner, StoreError

Cause = Literal["policy", "recovery"]


@asynccontextmanager
async def turn_told(session: Session, tell: Tell) -> AsyncGenerator[None]:
    """Tell that a turn begins, and of the error that it ends with, if it does."""
    settings = session.window.settings
    tell(TurnBegan(session=session.id, model=settings.model, dialect=settings.dialect))
    try:
        yield
    except BaseException as error:
        tell(BrokeOff(why=cause_of(error), error=type(error).__name__))
        raise


def cause_of(error: BaseException) -> str:
    """What cut a turn off, as one of few words."""
    match error:
        case asyncio.CancelledError() | KeyboardInterrupt() | GeneratorExit():
            return "cancelled"
        case ProviderError():
            return error.failure.kind
        case CannotFit():
            return "cannot_fit"
        case StaleOwner():
            return "stale"
        case StoreError():
            return "store"
        case _:
            return "error"


def call_begun(session: Session, *, near: bool) -> CallBegan:
    """The call that was recorded last, by figures that the window keeps anyway."""
    window, budget = session.window, session.budget()
    made = window.last_call
    return CallBegan(
        model=window.settings.model,
        dialect=window.settings.dialect,
        messages=window.messages,
        tokens=made.body.tokens if made is not None else 0,
        head=window.settings.head.tokens,
        front=window.front.tokens,
        room=budget.most_input,
        max_output=made.body.max_output if made is not None else 0,
        near=near,
    )


class CallClock:
    """The time of one call, and what the provider reports for it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = session.window.settings.model
        self._before = session.window.last_usage
        self._since = perf_counter()
        self._seconds = 0.0

    def stop(self) -> None:
        """The reply is there, or has failed; to write it down is no part of the call."""
        self._seconds = perf_counter() - self._since

    def ended(self, outcome: str = "ok") -> CallEnded:
        """What is told of it, once the reply is in the store."""
        window, usage = self._session.window, None
        # A provider that reports nothing leaves the usage of the call before in its place.
        if outcome == "ok" and window.last_usage is not self._before:
            usage = window.last_usage
        cost = cost_of(usage, window.settings.entry) if usage is not None else None
        return CallEnded(
            model=self._model, outcome=outcome, seconds=self._seconds, usage=usage, cost=cost
        )


async def edited_since(session: Session, position: int, cause: Cause) -> list[Edited]:
    """What edits behind a position hide now, by kind; the store is asked only where memory has
    let go of them since."""
    window = session.window
    if window.base.seq > position:
        hidden = await hidden_since(session.store, session.id, window, position)
        ops = {REJECTED: "mask"}
        return [
            Edited(op=ops.get(h.op, h.op), count=h.count, tokens=h.tokens, cause=cause)
            for h in hidden
        ]
    found: dict[str, tuple[int, int]] = {}
    for seq, edit in _edits(window, position):
        count, tokens = _hides(window, seq, edit)
        before = found.get(edit.op, (0, 0))
        found[edit.op] = (before[0] + count, before[1] + tokens)
    return [
        Edited(op=op, count=count, tokens=tokens, cause=cause)
        for op, (count, tokens) in found.items()
        if count
    ]


def _edits(window: Window, position: int) -> Iterator[tuple[int, Edit]]:
    for event in reversed(window.past):
        if event.seq <= position:
            return
        if isinstance(event.body, Edit) and event.body.op != "reveal":
            yield event.seq, event.body


def _hides(window: Window, seq: int, edit: Edit) -> tuple[int, int]:
    """How many parts or messages it is that hides them, and their tokens."""
    if edit.part is None:
        groups = [g for g in window.between(edit.first, edit.last) if g.hidden_by == seq]
        return sum(g.messages for g in groups), sum(g.tokens for g in groups)
    entry = window.entries.get(edit.first)
    if entry is None or entry.edited_by.get(edit.part) != seq:
        return 0, 0  # another edit of the same pass came over it
    return 1, entry.sizes[edit.part].tokens - entry.shown(edit.part).tokens
