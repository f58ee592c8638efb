"""From a store to a context: the newest snapshot, the events it names, and those behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from trimtab.context import Context
from trimtab.core.budget import actor_message_limit, limit_of
from trimtab.core.event import Event
from trimtab.core.forgetting import Forgotten
from trimtab.core.snapshot import Snapshot
from trimtab.core.window import Window
from trimtab.stores.store import Span, Store

CHUNK = 2_000
"""Events that are folded at a time where there are many."""
EVERY = 256
"""Events after which a checkpoint is worth its while, or as many as are kept, if that is more."""


async def opened(
    store: Store, session: str, *, upto: int | None = None, keep: bool = False, **own: Any
) -> Context:
    """The context of a session, from a snapshot at or before a position.

    A long tail is folded piece by piece, letting go of what is hidden, unless it is to be kept.
    """
    snapshot = await store.snapshot(session, upto=upto)
    try:
        context: Context | None = None
        start = snapshot.seq if snapshot is not None else 0
        async for events in _chunks(store.events(session, spans_of(snapshot)), start):
            if context is None:
                context = Context.load(events, snapshot=snapshot, **own)
            else:
                context.apply(events)
            if not keep and due(context.window):
                context.checkpoint()
    except Forgotten as error:
        return await opened(store, session, upto=error.position, keep=True, **own)
    assert context is not None  # noqa: S101 - a session without events does not exist
    return context


async def window_at(
    store: Store, session: str, position: int, *, since: int | None = None
) -> Window:
    """The window as it was at a position; what was said after `since` is in memory, if given.

    A fold runs no policy, so it needs none: those that are functions are not in the log.
    """
    upto = position if since is None else since
    while True:
        snapshot = await store.snapshot(session, upto=upto)
        start = snapshot.seq if snapshot is not None else 0
        window: Window | None = None
        try:
            async for events in _chunks(store.events(session, spans_of(snapshot, position)), start):
                window = window or Window(None, snapshot, events)
                window.apply(*(event for event in events if event.seq > start))
        except Forgotten as error:
            upto = error.position
        else:
            assert window is not None  # noqa: S101 - a session without events does not exist
            return window


def spans_of(snapshot: Snapshot | None, position: int | None = None) -> Sequence[Span]:
    """Where the events stand that a fold from a snapshot needs."""
    if snapshot is None:
        return [(1, position)]
    if position is not None and position <= snapshot.seq:
        return snapshot.spans
    return [*snapshot.spans, (snapshot.seq + 1, position)]


def due(window: Window) -> bool:
    """Whether there is enough that need not stay in memory, or enough to fold at an opening."""
    since = window.seq - window.base.seq
    if since >= max(EVERY, len(window.entries)):
        return True
    limit = actor_message_limit(limit_of(window.settings, window.learned_limit)[0])
    hidden = len(window.entries) - window.messages
    return len(window.entries) > limit and hidden >= limit // 10


async def _chunks(events: AsyncIterator[Event], start: int) -> AsyncIterator[list[Event]]:
    """Pieces of the tail; the first begins with all that a snapshot at `start` names."""
    chunk: list[Event] = []
    async for event in events:
        chunk.append(event)
        if len(chunk) >= CHUNK and event.seq > start:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
