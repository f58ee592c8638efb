"""What is hidden, found in the store: by handle and by words."""

from __future__ import annotations

from trimtab.core.edits import parse_handle
from trimtab.core.event import Repair, Said
from trimtab.core.message import Message, ToolCall
from trimtab.core.recall import (
    MAX_HITS,
    NOTHING,
    arguments_of,
    excerpt,
    recalled,
    refuse_others,
    snippet,
)
from trimtab.core.recall import recall as recall_in
from trimtab.core.rewinding import holds
from trimtab.core.search import SEARCH, asked
from trimtab.core.window import Window
from trimtab.stores.store import Store

MOST = 2_000
"""Positions of a range that one recall goes through."""


async def recall(store: Store, session: str, window: Window, handle: str) -> str:
    """The text a handle names, exactly as it was said, however long ago."""
    named = parse_handle(handle)
    if named.first > window.gone_last:
        return recall_in(window, handle)
    last = min(named.last, named.first + MOST - 1)
    text = recalled(window, handle, await _said(store, session, window, named.first, last))
    if last < named.last:
        return f"{text}\n[{named.last - last} more positions; ask for m{last + 1}-m{named.last}]"
    return text


async def search(store: Store, session: str, window: Window, query: str) -> str:
    """The messages that hold most of the words, newest first among equals."""
    wanted = asked(query)
    limit = 4 * MAX_HITS
    while True:
        found = await store.search(session, query, limit=limit)
        # Some may have been undone: they are passed over.
        held = [seq for seq in found if holds(seq, window.rewinds)][:MAX_HITS]
        if len(held) == MAX_HITS or len(found) < limit:
            break
        limit *= 4
    hits: list[str] = []
    for seq in held:
        said = await _said(store, session, window, seq, seq)
        hits += [snippet(message, seq, wanted) for message in said.values()]
    return "\n\n".join(hits) or NOTHING


async def answer(store: Store, session: str, window: Window, call: ToolCall) -> str:
    """The answer to a call of a recall tool; what it cannot find, it says."""
    refuse_others(call)
    try:
        wanted = arguments_of(call)
        if call.name == SEARCH:
            return await search(store, session, window, wanted["query"])
        text = await recall(store, session, window, wanted["handle"])
        return excerpt(text, wanted["lines"], wanted["grep"])
    except (LookupError, ValueError) as error:
        return f"[{error}]"


async def _said(
    store: Store, session: str, window: Window, first: int, last: int
) -> dict[int, Message]:
    return {
        event.seq: event.body.message
        async for event in store.events(session, [(first, last)])
        if isinstance(event.body, Said | Repair) and holds(event.seq, window.rewinds)
    }
