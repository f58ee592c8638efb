"""From a store to a state: the newest snapshot, the events it names, and the events after it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from trimtab.engine.log.event import Event
from trimtab.engine.policy.budget import compute_max_messages_in_memory
from trimtab.engine.window.accounting import resolve_token_limit_and_source
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.engine.window.window import Window
from trimtab.errors import HistoryNotInMemory, LogDamaged, TrimtabError
from trimtab.session.threads import estimate_fold_bytes, run_in_thread_if_long
from trimtab.stores.base import PositionSpan, Store
from trimtab.verbs.state import State, load_state

MAX_FOLD_CHUNK_EVENTS = 2_000
"""How many events are folded at a time."""
MIN_CHECKPOINT_EVENTS = 256
"""A checkpoint is worthwhile after this many events, or after as many as are in memory, if that is
more."""
MIN_CHECKPOINT_BYTES = 4 * 1024 * 1024
"""A checkpoint is worthwhile after this many bytes of messages, if some of them are hidden."""


async def load_session_state(
    store: Store,
    session_id: str,
    *,
    max_snapshot_seq: int | None = None,
    keep_hidden: bool = False,
    clock: Callable[[], float] = time.time,
    **functions: Any,
) -> tuple[State, Event | None]:
    """Load the state of a session, from a snapshot at or before a position.

    Also return the last event of the log; None if it is only in the snapshot.

    A long tail is folded in chunks. Hidden messages are removed from memory, unless `keep_hidden`.
    `functions` are options of the caller that may not be in the log; some may be missing.
    """
    snapshot = await store.snapshot(session_id, upto=max_snapshot_seq)
    try:
        state: State | None = None
        last_event: Event | None = None
        start = snapshot.seq if snapshot is not None else 0
        async for events in _chunk_events(
            store.events(session_id, list_spans_to_load(snapshot)), start
        ):
            fold = partial(
                _fold_chunk,
                state,
                events,
                clock,
                snapshot=snapshot,
                keep_hidden=keep_hidden,
                **functions,
            )
            state = await run_in_thread_if_long(fold, estimate_fold_bytes(events))
            last_event = events[-1]
    except HistoryNotInMemory as error:
        return await load_session_state(
            store,
            session_id,
            max_snapshot_seq=error.position,
            keep_hidden=True,
            clock=clock,
            **functions,
        )
    assert state is not None  # noqa: S101 - a session without events does not exist
    assert last_event is not None  # noqa: S101 - as above
    return state, last_event if last_event.seq == state.window.seq else None


def _fold_chunk(
    state: State | None,
    events: list[Event],
    clock: Callable[[], float],
    *,
    snapshot: Snapshot | None,
    keep_hidden: bool,
    **functions: Any,
) -> State:
    if state is None:
        state = load_state(events, clock, snapshot=snapshot, **functions)
    else:
        state.window.apply(*events)
    if not keep_hidden and is_checkpoint_due(state.window):
        state.window.checkpoint()
    return state


@contextmanager
def explain_damage(session_id: str) -> Generator[None]:
    """Raise `LogDamaged` instead of what a log with wrong values raises when it is folded."""
    try:
        yield
    except (TrimtabError, OSError):
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise LogDamaged(
            f"the log of session {session_id!r} has a value that cannot be read ({error}); restore "
            "it from a backup"
        ) from error


async def load_state_to_read(store: Store, session_id: str) -> State:
    """Load the state of a session without the functions of its caller, which are not in the log:
    a policy, a tokenizer, a redaction.

    The policy makes no decisions here, so any policy will do. No message can be added.
    """
    state, _ = await load_session_state(store, session_id, policy="full", redact=_refuse_new_text)
    return state


def _refuse_new_text(_text: str) -> str:
    raise RuntimeError("a session that was opened without its own functions takes no new text")


async def load_window_at(
    store: Store, session_id: str, position: int, *, keep_after: int | None = None
) -> Window:
    """Load the window as it was at a position. Messages after `keep_after` stay in memory.

    A fold runs no policy, so it needs none. Policies that are functions are not in the log.
    """
    upto = position if keep_after is None else keep_after
    while True:
        snapshot = await store.snapshot(session_id, upto=upto)
        start = snapshot.seq if snapshot is not None else 0
        window: Window | None = None
        try:
            async for events in _chunk_events(
                store.events(session_id, list_spans_to_load(snapshot, position)), start
            ):
                window = window or Window(None, snapshot, events)
                fold = partial(window.apply, *(event for event in events if event.seq > start))
                await run_in_thread_if_long(fold, estimate_fold_bytes(events))
        except HistoryNotInMemory as error:
            upto = error.position
        else:
            assert window is not None  # noqa: S101 - a session without events does not exist
            return window


def list_spans_to_load(
    snapshot: Snapshot | None, last_seq: int | None = None
) -> Sequence[PositionSpan]:
    """Return the position spans of the events that a fold from a snapshot needs."""
    if snapshot is None:
        return [(1, last_seq)]
    if last_seq is not None and last_seq <= snapshot.seq:
        return snapshot.spans
    return [*snapshot.spans, (snapshot.seq + 1, last_seq)]


def is_checkpoint_due(window: Window) -> bool:
    """Whether enough hidden messages are in memory, or an opening would have to fold many events
    or read long texts that are hidden."""
    if window.accounting.rejection.provider_message:
        return False  # it may quote a message, and an erasure leaves snapshots as they are
    since = window.seq - window.base.snapshot.seq
    if since >= max(MIN_CHECKPOINT_EVENTS, len(window.entries)):
        return True
    hidden_messages = len(window.entries) - window.visible_messages
    if hidden_messages and window.base.bytes_since_snapshot >= MIN_CHECKPOINT_BYTES:
        return True
    limit = _resolve_message_limit(window)
    return len(window.entries) > limit and hidden_messages >= limit // 10


def exceeds_message_limit(window: Window) -> bool:
    """Whether `layered` shows so many messages above its limit that hiding them is worth an
    event."""
    if window.settings.policy != "layered":
        return False
    limit = _resolve_message_limit(window)
    return window.visible_messages > limit + limit // 10


def _resolve_message_limit(window: Window) -> int:
    return compute_max_messages_in_memory(
        resolve_token_limit_and_source(window.settings, window.accounting.learned_limit)[0]
    )


async def _chunk_events(
    events: AsyncIterator[Event], snapshot_seq: int
) -> AsyncIterator[list[Event]]:
    """Split the tail into chunks. The first begins with all events that the snapshot names."""
    chunk: list[Event] = []
    async for event in events:
        chunk.append(event)
        if len(chunk) >= MAX_FOLD_CHUNK_EVENTS and event.seq > snapshot_seq:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
