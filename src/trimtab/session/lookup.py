"""What is hidden, found in the store: by handle and by words."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.core.edits import parse_handle
from trimtab.core.event import Edit, Repair, Said
from trimtab.core.levels import DEPTH, names, opened
from trimtab.core.message import Message, ToolCall
from trimtab.core.passages import LOOKED_AT
from trimtab.core.passages import found as passages
from trimtab.core.recall import (
    MAX_CHARS,
    NOTHING,
    arguments_of,
    excerpt,
    in_sight,
    recalled,
    refuse_others,
)
from trimtab.core.recall import recall as recall_in
from trimtab.core.rewinding import holds
from trimtab.core.search import SEARCH, asked
from trimtab.core.window import Window
from trimtab.stores.store import Span, Store

MOST = 2_000
"""Positions of a range that one recall goes through."""


async def recall(store: Store, session: str, window: Window, handle: str) -> str:
    """The text a handle names, exactly as it was said, however long ago."""
    named = parse_handle(handle)
    if named.first > window.gone_last:
        return recall_in(window, handle)
    last = min(named.last, named.first + MOST - 1)
    text = recalled(window, handle, await _said(store, session, window, [(named.first, last)]))
    if last < named.last:
        return f"{text}\n[{named.last - last} more positions; ask for m{last + 1}-m{named.last}]"
    return text


async def search(store: Store, session: str, window: Window, query: str) -> str:
    """The passages that hold most of the words, of what the model does not see first."""
    wanted, seen = asked(query), in_sight(window)
    limit = len(seen) + 4 * LOOKED_AT
    while True:
        found = await store.search(session, query, limit=limit)
        # Some may have been undone: they are passed over.
        held = [seq for seq in found if holds(seq, window.rewinds)]
        hidden = [seq for seq in held if seq not in seen]
        if len(hidden) >= LOOKED_AT or len(found) < limit:
            break
        limit *= 4
    chosen = [*hidden, *(seq for seq in held if seq in seen)][:LOOKED_AT]
    said = await _said(store, session, window, [(seq, seq) for seq in sorted(chosen)])
    return passages(said, wanted, window.counter, seen) or NOTHING


async def answer(store: Store, session: str, window: Window, call: ToolCall) -> str:
    """The answer to a call of a recall tool; what it cannot find, it says."""
    refuse_others(call)
    try:
        wanted = arguments_of(call)
        if call.name == SEARCH:
            return await search(store, session, window, wanted["query"])
        whole = not wanted["lines"] and not wanted["grep"]
        if whole and (level := await _level(store, session, window, wanted["handle"])):
            return level
        text = await recall(store, session, window, wanted["handle"])
        return excerpt(text, wanted["lines"], wanted["grep"])
    except (LookupError, ValueError) as error:
        return f"[{error}]"


async def _level(store: Store, session: str, window: Window, handle: str) -> str | None:
    """A summary opened by one level; None where the handle names none."""
    named = parse_handle(handle)
    chain: list[Edit] = []
    edit = window.summary if named.first < named.last else None
    # One further than it is named by: the summary inside it is shown with it.
    while edit is not None and len(chain) < DEPTH:
        chain.append(edit)
        span = (edit.prior, edit.prior)
        bodies = [e.body async for e in store.events(session, [span])] if edit.prior else []
        inside = edit.last < named.last
        edit = next((body for body in bodies if isinstance(body, Edit) and not inside), None)
    if not any(names(named, edit) for edit in chain):
        return None
    last = min(named.last, named.first + MOST - 1)
    said = await _said(store, session, window, [(named.first, last)])
    return opened(named, chain, said, limit=MAX_CHARS)


async def _said(
    store: Store, session: str, window: Window, spans: Sequence[Span]
) -> dict[int, Message]:
    return {
        event.seq: event.body.message
        async for event in store.events(session, spans)
        if isinstance(event.body, Said | Repair) and holds(event.seq, window.rewinds)
    }
