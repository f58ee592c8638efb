"""The conversation of a session, read back from the store page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.engine.recall.transcript import HidingEdits, LoggedMessage, build_logged_message
from trimtab.engine.window.checkpoint import MAX_REMEMBERED_REWINDS
from trimtab.engine.window.window import Window
from trimtab.stores.base import Store


async def read_messages(
    store: Store, session_id: str, get_window: Callable[[], Window], after_seq: int
) -> AsyncIterator[LoggedMessage]:
    """Yield the messages after a position up to the end of the window, in order.

    The log is read once, and twice if some of the messages have left memory: what hides or undoes a
    message comes later in the log. No more than a page of it is in memory at a time.
    """
    window = get_window()
    span = (after_seq + 1, window.seq)
    hiding_edits = HidingEdits()
    has_forgotten_rewinds = len(window.base.rewinds) >= MAX_REMEMBERED_REWINDS
    if after_seq < window.base.last_evicted_seq or has_forgotten_rewinds:
        async for event in store.events(session_id, [span]):
            hiding_edits.add_event(event)
        hiding_edits.finish()
    async for event in store.events(session_id, [span]):
        body = event.body
        if not isinstance(body, MessageAdded):
            continue
        if not is_event_in_force(event.seq, hiding_edits.rewinds):
            continue
        at = None if body.undated else event.at
        # The window of this moment: a message may have been undone or erased since the last one.
        message = build_logged_message(get_window(), event.seq, body.message, at, hiding_edits)
        if message is not None:
            yield message
