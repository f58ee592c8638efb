"""Change events of a log, and everything that was made from them, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from trimtab.engine.log.event import CallOutcome, Edit, Event, Fork, ModelCall
from trimtab.errors import SessionNotFound
from trimtab.stores.base import WHOLE_LOG
from trimtab.stores.large_texts import compress_text
from trimtab.stores.postgres.append import (
    build_append_statement,
    find_append_refusal,
    find_key_refusal,
)
from trimtab.stores.postgres.escaping import compute_session_uuid, escape_for_text_column
from trimtab.stores.postgres.event_rows import (
    clamp_timestamp,
    event_to_row_and_blobs,
    usage_to_columns,
)
from trimtab.stores.postgres.fulltext import build_lexeme_chunks
from trimtab.stores.postgres.log_reader import read_events
from trimtab.stores.postgres.queries import QUERIES


class LogRewriter:
    """One pass through a log. The session's row is locked, so that nobody can append."""

    def __init__(self, connection: AsyncConnection, session: str) -> None:
        self._connection = connection
        self._session = session
        self._key = compute_session_uuid(session)
        self._indexed = 0
        self._changed = False
        self._gone: set[str] = set()
        self._live: set[str] = set()
        self._summary: tuple[str | None, float | None] = None, None
        self._parent: str | None = None

    async def rewrite(self, new_events: Sequence[Event], change: Callable[[Event], Event]) -> None:
        """Rewrite the log. The caller holds the transaction."""
        rows = await self._fetch(QUERIES["lock"], [self._key])
        if not rows:
            raise SessionNotFound(self._session)
        self._indexed = rows[0][0]
        await self._admit(new_events)
        async for event in read_events(self._fetch, self._key, WHOLE_LOG):
            new = change(event)
            if new.seq != event.seq:
                raise ValueError(
                    f"event {event.seq} was changed into one at {new.seq}; it must keep its "
                    "position"
                )
            if new != event:
                await self._replace(event, new)
            else:
                self._live |= event_to_row_and_blobs(self._session, event)[1].keys()
            self._note(new)
        await self._append(new_events)
        if self._changed:
            await self._forget()

    async def _admit(self, events: Sequence[Event]) -> None:
        """Check the events as `append` does. Nobody can write in between."""
        refusal = (
            await find_append_refusal(self._fetch, self._session, events, None) if events else None
        )
        refusal = refusal or await find_key_refusal(self._fetch, self._session, events)
        if refusal is not None:
            raise refusal

    async def _append(self, events: Sequence[Event]) -> None:
        for event in events:
            self._live |= event_to_row_and_blobs(self._session, event)[1].keys()
            self._note(event)
        if events:
            await self._execute(*build_append_statement(self._session, events, None))

    async def _replace(self, old: Event, new: Event) -> None:
        (at, seq, kind, key, body, subject), blobs = event_to_row_and_blobs(self._session, new)
        self._changed = True
        self._gone |= event_to_row_and_blobs(self._session, old)[1].keys()
        self._live |= blobs.keys()
        for digest, text in blobs.items():
            await self._execute(
                QUERIES["keep_blob"], [self._key, bytes.fromhex(digest), compress_text(text)]
            )
        await self._execute(
            QUERIES["rewrite_event"], [self._key, seq, at, kind, key, body, subject]
        )
        await self._rewrite_call(old, new)
        if seq <= self._indexed:
            await self._execute(QUERIES["drop_words"], [self._key, [seq]])
            await write_search_index_rows(self._connection, self._key, [new])

    async def _rewrite_call(self, old: Event, new: Event) -> None:
        match new.body:
            case ModelCall() as call:
                await self._execute(
                    QUERIES["rewrite_call"],
                    [self._key, new.seq, call.bytes, clamp_timestamp(new.at)],
                )
            case CallOutcome() as outcome:
                usage = usage_to_columns(outcome.usage)
                await self._execute(
                    QUERIES["end_call"], [self._key, outcome.call, outcome.status, *usage]
                )
            case _ if isinstance(old.body, ModelCall):
                await self._execute(QUERIES["drop_calls"], [self._key, [new.seq]])
            case _:
                pass

    def _note(self, event: Event) -> None:
        match event.body:
            case Edit(op="summarise", text=text):
                self._summary = escape_for_text_column(text), clamp_timestamp(event.at)
            case Fork(parent=parent):
                self._parent = escape_for_text_column(parent)
            case _:
                pass

    async def _forget(self) -> None:
        """Remove what was made from the erased texts."""
        orphans = [bytes.fromhex(digest) for digest in self._gone - self._live]
        await self._execute(QUERIES["drop_blobs"], [self._key, orphans])
        await self._execute(QUERIES["rewrite_session"], [self._key, *self._summary, self._parent])

    async def _execute(self, query: bytes, parameters: list[Any]) -> None:
        await self._connection.execute(query, parameters)

    async def _fetch(self, query: bytes, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(query, parameters)).fetchall()


async def write_search_index_rows(
    connection: AsyncConnection, session_key: UUID, events: Sequence[Event]
) -> None:
    """Index messages by their words."""
    rows = [
        [session_key, event.seq, number, words]
        for event in events
        for number, words in enumerate(build_lexeme_chunks(session_key, event))
    ]
    if rows:
        async with connection.cursor() as cursor:
            await cursor.executemany(QUERIES["index_words"], rows)
