"""The events with figures about a turn: its calls, its edits, its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Literal

from trimtab.engine.log.call_failure import UNBILLED_KINDS
from trimtab.engine.log.event import Edit, Usage, add_usage
from trimtab.engine.log.message import Message
from trimtab.engine.tokens.cost import compute_cost_usd
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit, ProviderError, StaleOwner, StoreError
from trimtab.session.events import (
    AssistantReplied,
    ContextEdited,
    ModelCallFinished,
    ModelCallStarted,
    TurnEvent,
    TurnFailed,
    TurnStarted,
)
from trimtab.session.history import REJECTED_OP, total_hidden_since_by_edit_kind
from trimtab.session.session import Session
from trimtab.session.tools import OnEvent

EditCause = Literal["policy", "recovery"]


@asynccontextmanager
async def emit_turn_start_and_failure(session: Session, on_event: OnEvent) -> AsyncGenerator[None]:
    """Emit the start of a turn, and the failure if an error ends it."""
    settings = session.window.settings
    on_event(TurnStarted(session=session.id, model=settings.model, dialect=settings.dialect))
    try:
        yield
    except BaseException as error:
        on_event(TurnFailed(reason=classify_turn_error(error), error=type(error).__name__))
        raise


def classify_turn_error(error: BaseException) -> str:
    """Return the reason why a turn failed, as one of a few words."""
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


def build_call_started(session: Session, *, near_limit: bool) -> ModelCallStarted:
    """Build the event of the last recorded call, from figures that the window has."""
    window = session.window
    budget = session.budget()
    call = window.last_call
    return ModelCallStarted(
        model=window.settings.model,
        dialect=window.settings.dialect,
        messages=window.visible_messages,
        tokens=call.body.tokens if call is not None else 0,
        head=window.settings.head.tokens,
        front=window.conversation.front_size.tokens,
        room=budget.max_input_bound,
        max_output=call.body.max_output if call is not None else 0,
        near=near_limit,
    )


class ModelCallMeter:
    """Measures the time of one call and what the provider reports for it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = session.window.settings.model
        self._before = session.window.accounting.last_usage
        self._since = perf_counter()
        self._seconds = 0.0

    def stop(self) -> None:
        """Stop the clock when the reply is complete or has failed; storing it is not part of the
        call."""
        self._seconds = perf_counter() - self._since

    def build_finished_event(self, outcome: str = "ok") -> ModelCallFinished:
        """Build the event, after the reply is in the store."""
        window = self._session.window
        usage = None
        # A provider that reports nothing leaves the usage of the call before in its place.
        if outcome == "ok" and window.accounting.last_usage is not self._before:
            usage = window.accounting.last_usage
        at = 0.0 if window.last_call is None else window.last_call.at
        cost = None if usage is None else compute_cost_usd(usage, window.settings.entry, at=at)
        return ModelCallFinished(
            model=self._model, outcome=outcome, seconds=self._seconds, usage=usage, cost=cost
        )


class TurnMeter:
    """Passes the events of a turn on, and keeps what its end reports: the last reply, and what the
    calls used and cost."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self.message: Message | None = None
        """The last reply."""
        self.usage: Usage | None = Usage(input=0)
        """Usage of all calls; None if it is not known for one of them."""
        self.cost: float | None = 0.0
        """Cost of all calls in US dollars; None if it is not known for one of them."""

    def __call__(self, event: TurnEvent) -> None:
        """Pass an event on."""
        match event:
            case AssistantReplied():
                self.message = event.message
            case ModelCallFinished() if event.outcome not in UNBILLED_KINDS:
                usage = event.usage
                cost = event.cost
                usage_before = self.usage
                self.usage = (
                    None
                    if usage_before is None or usage is None
                    else add_usage(usage_before, usage)
                )
                self.cost = None if self.cost is None or cost is None else self.cost + cost
            case _:
                pass
        self._on_event(event)


async def total_edits_by_kind_since(
    session: Session, position: int, cause: EditCause
) -> list[ContextEdited]:
    """Return what edits after a position hide now, by kind.

    The store is read only if they are no longer in memory.
    """
    window = session.window
    if window.base.snapshot.seq > position:
        hidden_totals = await total_hidden_since_by_edit_kind(
            session.store, session.id, window, position
        )
        ops = {REJECTED_OP: "mask"}
        return [
            ContextEdited(op=ops.get(h.op, h.op), count=h.count, tokens=h.tokens, cause=cause)
            for h in hidden_totals
        ]
    totals: dict[str, tuple[int, int]] = {}
    for seq, edit in _iter_edits_since(window, position):
        count, tokens = _count_hidden_by(window, seq, edit)
        before = totals.get(edit.op, (0, 0))
        totals[edit.op] = (before[0] + count, before[1] + tokens)
    return [
        ContextEdited(op=op, count=count, tokens=tokens, cause=cause)
        for op, (count, tokens) in totals.items()
        if count
    ]


def _iter_edits_since(window: Window, position: int) -> Iterator[tuple[int, Edit]]:
    for event in reversed(window.base.events_since_snapshot):
        if event.seq <= position:
            return
        if isinstance(event.body, Edit) and event.body.op != "reveal":
            yield event.seq, event.body


def _count_hidden_by(window: Window, seq: int, edit: Edit) -> tuple[int, int]:
    """Return how many parts or messages the edit hides, and their tokens."""
    if edit.part is None:
        groups = [
            g
            for g in window.conversation.groups_between(edit.first, edit.last)
            if g.hidden_by == seq
        ]
        return sum(g.message_count for g in groups), sum(g.tokens for g in groups)
    entry = window.entries.get(edit.first)
    if entry is None or entry.edited_by.get(edit.part) != seq:
        return 0, 0  # another edit of the same pass came over it
    return 1, entry.sizes[edit.part].tokens - entry.shown_size(edit.part).tokens
