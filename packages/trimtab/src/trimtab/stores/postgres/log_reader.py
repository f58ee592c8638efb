"""Read a log in pages: one query for the events of a page and one for their large texts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from trimtab.engine.log.event import Event
from trimtab.errors import LogDamaged
from trimtab.stores.base import PositionSpan
from trimtab.stores.large_texts import decompress_text, list_blob_digests
from trimtab.stores.postgres.event_rows import event_from_row_body
from trimtab.stores.postgres.queries import QUERIES

FetchRows = Callable[[bytes, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]
"""Runs a query, in its own transaction or in the caller's."""

EVENTS_PER_PAGE = 500
"""Number of events to read at once."""
MAX_LARGE_TEXTS_HELD = 32
"""Maximum number of large texts in memory at once, plus those of one event."""

BoundedSpan = tuple[int, int]


async def read_events(
    fetch: FetchRows, session_key: UUID, spans: Sequence[PositionSpan]
) -> AsyncIterator[Event]:
    """Yield the events at these positions.

    No connection is held between two pages, however slow the reader is. A log only grows, so pages
    fit together.
    """
    waiting = sorted(((max(first, 1), last) for first, last in spans), key=lambda span: span[0])
    while waiting:
        page, waiting = _cut_page(waiting)
        seqs = [seq for first, last in page for seq in range(first, last + 1)]
        bodies = await _fetch_bodies(fetch, session_key, page)
        next_seqs = iter(seqs)
        async for event in _load_events(fetch, session_key, bodies):
            if event.seq != (seq := next(next_seqs)):
                raise LogDamaged(
                    f"session {session_key} has no event {seq}, but has event {event.seq}; "
                    "restore it from a backup"
                )
            yield event
        if len(bodies) < len(seqs):
            return


def _cut_page(spans: Sequence[PositionSpan]) -> tuple[list[BoundedSpan], list[PositionSpan]]:
    """Return the first `EVENTS_PER_PAGE` positions of these spans, and the rest."""
    page: list[BoundedSpan] = []
    room = EVENTS_PER_PAGE
    for index, (first, last) in enumerate(spans):
        end = first + room - 1 if last is None else min(last, first + room - 1)
        if end >= first:
            page.append((first, end))
        room -= max(0, end - first + 1)
        rest: list[PositionSpan] = [] if end == last or (last or end) < first else [(end + 1, last)]
        if room == 0 or rest:
            return page, [*rest, *spans[index + 1 :]]
    return page, []


async def _fetch_bodies(fetch: FetchRows, session_key: UUID, page: list[BoundedSpan]) -> list[str]:
    firsts = [first for first, _ in page]
    lasts = [last for _, last in page]
    return [body for (body,) in await fetch(QUERIES["events"], [session_key, firsts, lasts])]


async def _load_events(
    fetch: FetchRows, session_key: UUID, bodies: list[str]
) -> AsyncIterator[Event]:
    """Yield the events of these bodies, with as few queries for large texts as memory allows."""
    waiting: list[dict[str, Any]] = []
    digests: dict[str, None] = {}
    for body in bodies:
        data = json.loads(body)
        waiting.append(data)
        digests.update(dict.fromkeys(list_blob_digests(data)))
        if len(digests) >= MAX_LARGE_TEXTS_HELD:
            for event in await _load_group(fetch, session_key, waiting, list(digests)):
                yield event
            waiting = []
            digests = {}
    for event in await _load_group(fetch, session_key, waiting, list(digests)):
        yield event


async def _load_group(
    fetch: FetchRows, session_key: UUID, group: list[dict[str, Any]], needed: list[str]
) -> list[Event]:
    texts = await _fetch_texts(fetch, session_key, needed)
    if len(texts) < len(needed):
        # A rewrite took a text away between the two queries; its event has changed as well.
        places = [(data["seq"], data["seq"]) for data in group]
        group = [json.loads(body) for body in await _fetch_bodies(fetch, session_key, places)]
        texts = await _fetch_texts(
            fetch, session_key, list({name for data in group for name in list_blob_digests(data)})
        )
    try:
        return [event_from_row_body(data, texts) for data in group]
    except KeyError as missing:
        raise LogDamaged(
            f"session {session_key} lacks the text {missing} of events {group[0]['seq']} to "
            f"{group[-1]['seq']}; restore it from a backup"
        ) from missing


async def _fetch_texts(fetch: FetchRows, session_key: UUID, needed: list[str]) -> dict[str, str]:
    if not needed:
        return {}
    names = [bytes.fromhex(digest) for digest in needed]
    rows = await fetch(QUERIES["blobs"], [session_key, names])
    return {digest.hex(): decompress_text(data) for digest, data in rows}
