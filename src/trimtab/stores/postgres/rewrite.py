"""Changing what a log says, and all that was made from what it said, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from trimtab.core.event import Call, Edit, Event, Fork, Outcome
from trimtab.stores.blobs import pack
from trimtab.stores.errors import NoSession
from trimtab.stores.postgres.append import key_refusal, refusal, statement_of
from trimtab.stores.postgres.names import uuid_of, written
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.postgres.reading import read
from trimtab.stores.postgres.rows import clamped, row_of, usage_columns
from trimtab.stores.postgres.words import lexemes
from trimtab.stores.store import WHOLE


class Rewriting:
    """One walk through a log. The session's row is locked, so nobody appends meanwhile."""

    def __init__(self, connection: AsyncConnection, session: str) -> None:
        self._connection = connection
        self._session = session
        self._key = uuid_of(session)
        self._indexed = 0
        self._changed = False
        self._gone: set[str] = set()
        self._live: set[str] = set()
        self._summary: tuple[str | None, float | None] = None, None
        self._parent: str | None = None

    async def run(self, events: Sequence[Event], change: Callable[[Event], Event]) -> None:
        """All of it; the caller holds the transaction."""
        rows = await self._fetch(QUERIES["lock"], [self._key])
        if not rows:
            raise NoSession(self._session)
        self._indexed = rows[0][0]
        await self._admit(events)
        async for event in read(self._fetch, self._key, WHOLE):
            new = change(event)
            if new.seq != event.seq:
                raise ValueError(f"event {event.seq} was changed into one at {new.seq}")
            if new != event:
                await self._replace(event, new)
            else:
                self._live |= row_of(event)[1].keys()
            self._note(new)
        await self._append(events)
        if self._changed:
            await self._forget()

    async def _admit(self, events: Sequence[Event]) -> None:
        """As `append` would; nobody can come in between."""
        refused = await refusal(self._fetch, self._session, events, None) if events else None
        refused = refused or await key_refusal(self._fetch, self._session, events)
        if refused is not None:
            raise refused

    async def _append(self, events: Sequence[Event]) -> None:
        for event in events:
            self._live |= row_of(event)[1].keys()
            self._note(event)
        if events:
            await self._execute(*statement_of(self._session, events, None))

    async def _replace(self, old: Event, new: Event) -> None:
        (at, seq, kind, key, body), blobs = row_of(new)
        self._changed = True
        self._gone |= row_of(old)[1].keys()
        self._live |= blobs.keys()
        for digest, text in blobs.items():
            await self._execute(
                QUERIES["keep_blob"], [self._key, bytes.fromhex(digest), pack(text)]
            )
        await self._execute(QUERIES["rewrite_event"], [self._key, seq, at, kind, key, body])
        await self._rewrite_call(old, new)
        if seq <= self._indexed:
            await self._execute(QUERIES["drop_words"], [self._key, [seq]])
            await index(self._connection, self._key, [new])

    async def _rewrite_call(self, old: Event, new: Event) -> None:
        match new.body:
            case Call() as call:
                await self._execute(
                    QUERIES["rewrite_call"], [self._key, new.seq, call.bytes, clamped(new.at)]
                )
            case Outcome() as outcome:
                usage = usage_columns(outcome.usage)
                await self._execute(
                    QUERIES["end_call"], [self._key, outcome.call, outcome.status, *usage]
                )
            case _ if isinstance(old.body, Call):
                await self._execute(QUERIES["drop_calls"], [self._key, [new.seq]])
            case _:
                pass

    def _note(self, event: Event) -> None:
        match event.body:
            case Edit(op="summarise", text=text):
                self._summary = written(text), clamped(event.at)
            case Fork(parent=parent):
                self._parent = written(parent)
            case _:
                pass

    async def _forget(self) -> None:
        """What was made from the texts that are gone."""
        orphans = [bytes.fromhex(digest) for digest in self._gone - self._live]
        await self._execute(QUERIES["drop_blobs"], [self._key, orphans])
        await self._execute(QUERIES["rewrite_session"], [self._key, *self._summary, self._parent])

    async def _execute(self, query: bytes, parameters: list[Any]) -> None:
        await self._connection.execute(query, parameters)

    async def _fetch(self, query: bytes, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(query, parameters)).fetchall()


async def index(connection: AsyncConnection, key: UUID, events: Sequence[Event]) -> None:
    """Make messages findable by their words."""
    rows = [
        [key, event.seq, number, words]
        for event in events
        for number, words in enumerate(lexemes(key, event))
    ]
    if rows:
        async with connection.cursor() as cursor:
            await cursor.executemany(QUERIES["index_words"], rows)
