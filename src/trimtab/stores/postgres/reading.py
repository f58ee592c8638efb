"""A log in pages: each one query for its events and one for the large texts they need."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from trimtab.core.event import Event
from trimtab.stores.blobs import digests, unpack
from trimtab.stores.errors import Damaged
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.postgres.rows import event_of
from trimtab.stores.store import Span

Fetch = Callable[[bytes, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]
"""Runs a query: in a transaction of its own, or in the caller's."""

PAGE = 500
"""Events read at once."""
TEXTS = 32
"""Large texts held at once, and one event's more."""

Bounded = tuple[int, int]


async def read(fetch: Fetch, key: UUID, spans: Sequence[Span]) -> AsyncIterator[Event]:
    """The events at these positions. No connection is held between two pages, however slow the
    reader; a log only grows, so pages read one after the other fit together."""
    waiting = sorted(((max(first, 1), last) for first, last in spans), key=lambda span: span[0])
    while waiting:
        page, waiting = _cut(waiting)
        wanted = [seq for first, last in page for seq in range(first, last + 1)]
        bodies = await _bodies(fetch, key, page)
        expected = iter(wanted)
        async for event in _whole(fetch, key, bodies):
            if event.seq != (seq := next(expected)):
                raise Damaged(
                    f"session {key} has no event {seq}, but one at {event.seq}; restore it from a "
                    "backup"
                )
            yield event
        if len(bodies) < len(wanted):
            return


def _cut(spans: Sequence[Span]) -> tuple[list[Bounded], list[Span]]:
    """The first PAGE positions of these spans, and the rest."""
    page: list[Bounded] = []
    room = PAGE
    for index, (first, last) in enumerate(spans):
        end = first + room - 1 if last is None else min(last, first + room - 1)
        if end >= first:
            page.append((first, end))
        room -= max(0, end - first + 1)
        rest: list[Span] = [] if end == last or (last or end) < first else [(end + 1, last)]
        if room == 0 or rest:
            return page, [*rest, *spans[index + 1 :]]
    return page, []


async def _bodies(fetch: Fetch, key: UUID, page: list[Bounded]) -> list[str]:
    firsts, lasts = [first for first, _ in page], [last for _, last in page]
    return [body for (body,) in await fetch(QUERIES["events"], [key, firsts, lasts])]


async def _whole(fetch: Fetch, key: UUID, bodies: list[str]) -> AsyncIterator[Event]:
    """The events of these bodies, with as few queries for large texts as memory allows."""
    waiting: list[dict[str, Any]] = []
    needed: dict[str, None] = {}
    for body in bodies:
        data = json.loads(body)
        waiting.append(data)
        needed.update(dict.fromkeys(digests(data)))
        if len(needed) >= TEXTS:
            for event in await _inlined(fetch, key, waiting, list(needed)):
                yield event
            waiting, needed = [], {}
    for event in await _inlined(fetch, key, waiting, list(needed)):
        yield event


async def _inlined(
    fetch: Fetch, key: UUID, group: list[dict[str, Any]], needed: list[str]
) -> list[Event]:
    texts = await _texts(fetch, key, needed)
    if len(texts) < len(needed):
        # A rewrite took a text away between the two queries; its event has changed as well.
        places = [(data["seq"], data["seq"]) for data in group]
        group = [json.loads(body) for body in await _bodies(fetch, key, places)]
        texts = await _texts(fetch, key, list({name for data in group for name in digests(data)}))
    try:
        return [event_of(data, texts) for data in group]
    except KeyError as missing:
        raise Damaged(
            f"session {key} lacks the text {missing} of events {group[0]['seq']} to "
            f"{group[-1]['seq']}; restore it from a backup"
        ) from missing


async def _texts(fetch: Fetch, key: UUID, needed: list[str]) -> dict[str, str]:
    if not needed:
        return {}
    names = [bytes.fromhex(digest) for digest in needed]
    rows = await fetch(QUERIES["blobs"], [key, names])
    return {digest.hex(): unpack(data) for digest, data in rows}
