"""Logs in PostgreSQL.

An append is one statement in a transaction of its own: one round trip, one commit. Two writers
meet at the primary key `(session, seq)`; nothing else is locked against each other.

An append whose connection dies raises `StoreUnavailable`, and whether it has landed is unknown:
the server may have committed before its answer was lost. Whoever goes on reads the position first;
a blind second try is refused with `PositionTaken` or `KeyTaken` if the first has landed. The same
store works again once the server is back.

A reader holds no connection between two pages; a session that is deleted while it is read ends
early.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from psycopg import AsyncConnection, errors

from trimtab.core.event import Event
from trimtab.core.search import asked, best, score, searchable, words_of
from trimtab.core.snapshot import Snapshot, snapshot_from_json, snapshot_to_json
from trimtab.stores.errors import NoSession, StoreUnavailable
from trimtab.stores.postgres.append import is_position, key_refusal, refusal, statement_of
from trimtab.stores.postgres.names import read as name_of
from trimtab.stores.postgres.names import uuid_of, written
from trimtab.stores.postgres.pool import Connections
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.postgres.reading import read
from trimtab.stores.postgres.rewrite import Rewriting, index
from trimtab.stores.postgres.words import queries
from trimtab.stores.store import WHOLE, Span, Stored

ATTEMPTS = 5
"""Tries of an append that was refused for a reason which is gone when looked for."""
BATCH = 500
"""Messages indexed at once."""
END = 2**31 - 1
"""Behind every position."""


class PostgresStore:
    """The `Store` for many processes. Made by `connect`, given back by `close`."""

    def __init__(self, connections: Connections) -> None:
        if isinstance(connections, str):
            raise TypeError("a store is made from an address by `await PostgresStore.connect(url)`")
        self._connections = connections
        self._fetch = connections.fetch

    @classmethod
    async def connect(
        cls, conninfo: str, *, min_size: int = 1, max_size: int = 16, wait: float = 10.0
    ) -> PostgresStore:
        """Open a pool of connections to a migrated database.

        `wait` is how many seconds a call waits for a connection before `StoreUnavailable`. A
        database that was not migrated, or by a later release, is refused with `NotMigrated` or
        `NewerSchema`.
        """
        return cls(
            await Connections.open(conninfo, min_size=min_size, max_size=max_size, wait=wait)
        )

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        if not events:
            refused = await refusal(self._fetch, session, events, epoch)
            if refused is not None:
                raise refused
            return
        query, parameters = statement_of(session, events, epoch)
        for _ in range(ATTEMPTS):
            async with self._connections.borrow() as connection:
                try:
                    cursor = self._connections.cursor(connection)
                    await cursor.execute(query, parameters)
                except errors.UniqueViolation as error:
                    at_key = not is_position(error)
                else:
                    if cursor.rowcount:
                        return
                    at_key = False
            # Not inside: a second connection may be needed while the first is lent.
            refused = await refusal(self._fetch, session, events, epoch)
            if refused is None and at_key:
                refused = await key_refusal(self._fetch, session, events)
            if refused is not None:
                raise refused
        raise StoreUnavailable(
            f"session {session!r} refused an append at {events[0].seq} {ATTEMPTS} times and each "
            "time had no reason when asked; try again"
        )

    async def events(self, session: str, spans: Sequence[Span] = WHOLE) -> AsyncIterator[Event]:
        found = False
        async for event in read(self._fetch, uuid_of(session), spans):
            found = True
            yield event
        if not found and not await self._fetch(QUERIES["exists"], [uuid_of(session)]):
            raise NoSession(session)

    async def position(self, session: str) -> int:
        rows = await self._fetch(QUERIES["position"], [uuid_of(session)])
        return rows[0][0] if rows else 0

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        last = END if upto is None else upto
        rows = await self._fetch(QUERIES["snapshot"], [uuid_of(session), last])
        return snapshot_from_json(json.loads(rows[0][0])) if rows else None

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        key = uuid_of(session)
        body = json.dumps(snapshot_to_json(snapshot), separators=(",", ":"), allow_nan=False)
        async with self._connections.borrow() as connection, connection.transaction():
            cursor = await connection.execute(QUERIES["lock_for_checkpoint"], [key])
            row = await cursor.fetchone()
            if row is None:
                raise NoSession(session)
            indexed, position = row
            await connection.execute(QUERIES["keep_snapshot"], [key, snapshot.seq, body])
            last = min(snapshot.seq, position)
            if last > indexed:
                await self._index(connection, session, (indexed + 1, last))
                await connection.execute(QUERIES["move_checkpoint"], [key, last])

    async def find_key(self, session: str, key: str) -> int | None:
        rows = await self._fetch(QUERIES["keys"], [uuid_of(session), [written(key)]])
        return rows[0][1] if rows else None

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        wanted, key = asked(query), uuid_of(session)
        rows = await self._fetch(QUERIES["checkpoint"], [key])
        if not rows or not wanted or limit < 1:
            return []
        indexed = rows[0][0]
        found = await self._fetch(QUERIES["search"], [key, queries(key, wanted), limit, indexed])
        tail = [
            (score(wanted, words_of(searchable(event))), event.seq)
            async for event in read(self._fetch, key, ((indexed + 1, None),))
        ]
        return best([*((hits, seq) for seq, hits in found), *tail], limit)

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        async with self._connections.borrow() as connection, connection.transaction():
            await Rewriting(connection, session).run(events, change)

    async def delete(self, session: str) -> None:
        key = uuid_of(session)
        async with self._connections.borrow() as connection, connection.transaction():
            # First, and with its key: appends hold a share of it, so none lands behind our back.
            cursor = await connection.execute(QUERIES["delete_session"], [key])
            if not cursor.rowcount:
                raise NoSession(session)
            for made in ("events", "blobs", "words", "snapshots", "calls"):
                await connection.execute(QUERIES[f"delete_{made}"], [key])

    async def forks(self, session: str) -> list[str]:
        rows = await self._fetch(QUERIES["forks"], [written(session)])
        return [name_of(name) for (name,) in rows]

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[Stored]:
        rows = await self._fetch(QUERIES["sessions"], [written(after), limit])
        return [
            Stored(
                session=name_of(name),
                position=position,
                messages=messages,
                updated=updated,
                parent=parent if parent is None else name_of(parent),
            )
            for name, position, messages, updated, parent in rows
        ]

    async def release(self, session: str) -> None:
        """Nothing is held: epochs say who owns a turn."""

    async def close(self) -> None:
        await self._connections.close()

    async def _index(self, connection: AsyncConnection, session: str, span: Span) -> None:
        async def fetch(query: bytes, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
            return await (await connection.execute(query, parameters)).fetchall()

        events: list[Event] = []
        async for event in read(fetch, uuid_of(session), (span,)):
            events.append(event)
            if len(events) == BATCH:
                await index(connection, uuid_of(session), events)
                events = []
        await index(connection, uuid_of(session), events)
