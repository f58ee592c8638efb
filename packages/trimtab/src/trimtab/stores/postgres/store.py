"""A store of logs in PostgreSQL.

An append is one statement in its own transaction: one round trip, one commit. Two writers conflict
at the primary key `(session, seq)`. There is no other lock between them.

If the connection fails during an append, the store raises `StoreUnavailable`. It is unknown whether
the append was committed, because the server may have committed before its answer was lost. Read the
position before you continue. If the append was committed, a second attempt raises `PositionTaken`
or `DuplicateIdempotencyKey`. The same store works again when the server is back.

A reader holds no connection between two pages. If a session is deleted while it is read, the reader
ends early.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn, Self

from psycopg import AsyncConnection, errors
from psycopg.types.numeric import Float8, Int8
from psycopg_pool import AsyncConnectionPool

from trimtab.engine.log.event import Event
from trimtab.engine.recall.search import (
    Query,
    get_searchable_text,
    rank_scored_positions,
    score_text,
)
from trimtab.engine.window.checkpoint import Snapshot, snapshot_from_json, snapshot_to_json
from trimtab.errors import SessionNotFound, StoreUnavailable
from trimtab.stores.base import NEWER_THAN_ALL, WHOLE_LOG, PoolUsage, PositionSpan, SessionListEntry
from trimtab.stores.forks import refuse_pickling
from trimtab.stores.postgres.append import (
    build_append_statement,
    find_append_refusal,
    find_key_refusal,
    is_position_conflict,
)
from trimtab.stores.postgres.connection_pool import ConnectionPool, SharedConnectionPool
from trimtab.stores.postgres.escaping import (
    compute_session_uuid,
    compute_subject_hash,
    escape_for_text_column,
)
from trimtab.stores.postgres.escaping import unescape_from_text_column as name_of
from trimtab.stores.postgres.fulltext import build_word_and_prefix_tsqueries
from trimtab.stores.postgres.log_reader import read_events
from trimtab.stores.postgres.log_rewriter import LogRewriter, write_search_index_rows
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.postgres.spending import PostgresSpendingLedger
from trimtab.stores.postgres.turn_locks import TurnLocks
from trimtab.stores.spending import SpendingLedger
from trimtab.stores.turn_queue import TurnQueue

MAX_APPEND_ATTEMPTS = 5
"""Maximum attempts of an append that was refused for a reason that no longer exists."""
MESSAGES_PER_INDEX_BATCH = 500
"""Number of messages to index at once."""
MAX_POSITION = 2**31 - 1
"""Larger than every position."""
LIST_BY_NAME_SQL, LIST_BY_RECENCY_SQL = (
    QUERIES["listed_sessions"].replace(b":order", QUERIES[order])
    for order in ("by_name", "by_recency")
)


class PostgresStore:
    """A store in PostgreSQL that many processes share. Open it with `connect` and close it with
    `close`."""

    def __init__(self, connections: ConnectionPool) -> None:
        if isinstance(connections, str):
            raise TypeError(
                "use `await PostgresStore.connect(url)` to make a store from an address"
            )
        self._connections = connections
        self._fetch = connections.fetch
        self._turns = TurnQueue()
        self._turn_locks = TurnLocks(connections)

    @classmethod
    async def connect(
        cls,
        database: str | AsyncConnectionPool[Any],
        *,
        max_size: int = 16,
        wait: float = 10.0,
    ) -> PostgresStore:
        """Connect to a migrated database, or share the pool of an application.

        The turns that the store holds need one more connection.

        Args:
            database: The address of the database: a URI, or `host=… dbname=…`. Or an open pool,
                which the store does not close. The other arguments are then of no use.
            max_size: Maximum number of connections.
            wait: Seconds that a call waits for a connection before it fails.

        Raises:
            StoreUnavailable: The database cannot be reached.
            DatabaseNotMigrated: The tables are missing or older than this release.
            DatabaseSchemaTooNew: A newer version of trimtab has migrated the database, and this
                version cannot run on it.
        """
        if isinstance(database, AsyncConnectionPool):
            return cls(await SharedConnectionPool.share(database))
        return cls(await ConnectionPool.open(database, max_size=max_size, wait=wait))

    def pool_usage(self) -> PoolUsage:
        """Return the current state of its connections."""
        return self._connections.usage()

    def spending_ledger(self) -> SpendingLedger:
        """Return the ledger of the costs of model calls."""
        return PostgresSpendingLedger(self._connections)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        refuse_pickling("PostgresStore")

    async def __aenter__(self) -> Self:
        """Return the store. It is closed at the end of the block."""
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        """Add events to a log, all or none; see `Store.append`."""
        if not events:
            refusal = await find_append_refusal(self._fetch, session, events, epoch)
            if refusal is not None:
                raise refusal
            return
        query, parameters = build_append_statement(session, events, epoch)
        for _ in range(MAX_APPEND_ATTEMPTS):
            async with self._connections.borrow() as connection:
                try:
                    cursor = self._connections.cursor(connection)
                    await cursor.execute(query, parameters)
                except errors.UniqueViolation as error:
                    at_key = not is_position_conflict(error)
                else:
                    if cursor.rowcount:
                        return
                    at_key = False
            # Not inside: a second connection may be needed while the first is lent.
            refusal = await find_append_refusal(self._fetch, session, events, epoch)
            if refusal is None and at_key:
                refusal = await find_key_refusal(self._fetch, session, events)
            if refusal is not None:
                raise refusal
        raise StoreUnavailable(
            f"session {session!r} refused an append at position {events[0].seq} "
            f"{MAX_APPEND_ATTEMPTS} times, and the reason was gone each time; try again"
        )

    async def events(
        self, session: str, spans: Sequence[PositionSpan] = WHOLE_LOG
    ) -> AsyncIterator[Event]:
        """Iterate over events of a log; see `Store.events`."""
        has_events = False
        async for event in read_events(self._fetch, compute_session_uuid(session), spans):
            has_events = True
            yield event
        if not has_events and await self._standing(session) is None:
            raise SessionNotFound(session)

    async def position(self, session: str) -> int:
        """Return the last position of a log; 0 if there is no such session."""
        standing = await self._standing(session)
        return standing[1] if standing else 0

    async def snapshot(self, session: str, *, upto: int | None = None) -> Snapshot | None:
        """Return the newest snapshot; see `Store.snapshot`."""
        last = MAX_POSITION if upto is None else upto
        rows = await self._fetch(QUERIES["snapshot"], [compute_session_uuid(session), last])
        return snapshot_from_json(json.loads(rows[0][0])) if rows else None

    async def checkpoint(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; see `Store.checkpoint`."""
        key = compute_session_uuid(session)
        body = json.dumps(snapshot_to_json(snapshot), separators=(",", ":"), allow_nan=False)
        async with self._writing() as connection:
            cursor = await connection.execute(QUERIES["lock_for_checkpoint"], [key])
            row = await cursor.fetchone()
            if row is None:
                raise SessionNotFound(session)
            last_indexed, position = row
            await connection.execute(QUERIES["keep_snapshot"], [key, snapshot.seq, body])
            last = min(snapshot.seq, position)
            if last > last_indexed:
                await self._index(connection, session, (last_indexed + 1, last))
                await connection.execute(QUERIES["move_checkpoint"], [key, last])

    async def find_key(self, session: str, key: str) -> int | None:
        """Return the position of the message with this idempotency key; None if there is none."""
        rows = await self._fetch(
            QUERIES["keys"], [compute_session_uuid(session), [escape_for_text_column(key)]]
        )
        return rows[0][1] if rows else None

    async def search(self, session: str, query: str, *, limit: int) -> list[int]:
        """Return the positions of the messages that match a query best, best first."""
        words, phrase = parsed_query = Query.parse(query)
        key = compute_session_uuid(session)
        rows = await self._fetch(QUERIES["checkpoint"], [key])
        if not rows or not words or limit < 1:
            return []
        last_indexed = rows[0][0]
        matches = await self._fetch(
            QUERIES["search"],
            [
                key,
                build_word_and_prefix_tsqueries(key, words),
                None if phrase else limit,
                last_indexed,
            ],
        )
        scores: dict[int, int] = dict(matches)
        # The index has words only. So texts that may contain the phrase are read.
        spans = [(seq, seq) for seq, hits in matches if phrase and hits >= len(words)]
        async for event in read_events(self._fetch, key, [*spans, (last_indexed + 1, None)]):
            text = get_searchable_text(event)
            if event.seq > last_indexed:
                scores[event.seq] = score_text(parsed_query, text)
            else:
                scores[event.seq] += parsed_query.score_phrase(text.lower(), scores[event.seq])
        return rank_scored_positions([(score, seq) for seq, score in scores.items()], limit)

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        """Append and replace events, all or none; see `Store.rewrite`."""
        async with self._writing() as connection:
            await LogRewriter(connection, session).rewrite(events, change)

    async def delete(self, session: str) -> None:
        """Remove a session and everything that was made from it."""
        key = compute_session_uuid(session)
        async with self._writing() as connection:
            # First, and with its key: appends hold a share of it, so none lands behind our back.
            cursor = await connection.execute(QUERIES["delete_session"], [key])
            if not cursor.rowcount:
                raise SessionNotFound(session)
            for table in ("events", "blobs", "words", "snapshots", "calls", "usage"):
                await connection.execute(QUERIES[f"delete_{table}"], [key])

    async def forks(self, session: str) -> list[str]:
        """Return the ids of the sessions that were forked from a session."""
        rows = await self._fetch(QUERIES["forks"], [escape_for_text_column(session)])
        return [name_of(name) for (name,) in rows]

    async def sessions_about(self, scope: str, subjects: Collection[str]) -> list[str]:
        """Return the sessions that may have one of these subjects."""
        hashes = [Int8(compute_subject_hash(scope, subject)) for subject in subjects]
        rows = await self._fetch(QUERIES["sessions_about"], [hashes])
        return [session for (name,) in rows if (session := name_of(name)).startswith(scope)]

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionListEntry]:
        """Return sessions in the order of their ids; see `Store.sessions`."""
        return await self._list(LIST_BY_NAME_SQL, [escape_for_text_column(after), limit])

    async def recent_sessions(
        self, folder: str, *, before: tuple[float, str] = NEWER_THAN_ALL, limit: int = 100
    ) -> list[SessionListEntry]:
        """Return the sessions of a folder, the last active ones first."""
        active_at, name = before
        where = [escape_for_text_column(folder), limit]
        return await self._list(
            LIST_BY_RECENCY_SQL, [*where, Float8(active_at), escape_for_text_column(name)]
        )

    async def _list(self, query: bytes, parameters: list[Any]) -> list[SessionListEntry]:
        return [
            SessionListEntry(
                session=name_of(name),
                position=position,
                messages=messages,
                updated=updated_at,
                active=active,
                parent=parent if parent is None else name_of(parent),
            )
            for name, position, messages, updated_at, parent, active in await self._fetch(
                query, parameters
            )
        ]

    def hold_turn(self, session: str, *, wait: float) -> AbstractAsyncContextManager[None]:
        """Hold the turn of a session, see `Store.hold_turn`."""
        return self._turns.hold(
            session,
            wait=wait,
            try_lock=lambda: self._turn_locks.try_lock(session),
            unlock=lambda: self._turn_locks.unlock(session),
        )

    async def release(self, session: str) -> None:
        """Do nothing: only turns are locked. Epochs say who owns a turn."""

    async def close(self) -> None:
        """Close the connections that the store has opened."""
        await self._turn_locks.close()
        await self._connections.close()

    async def _standing(self, session: str) -> tuple[int | None, int] | None:
        """Return the newest claim and the last position. None if there is no such session."""
        rows = await self._fetch(QUERIES["position"], [compute_session_uuid(session)])
        return rows[0] if rows else None

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[AsyncConnection]:
        async with self._connections.borrow() as connection, connection.transaction():
            yield connection

    async def _index(self, connection: AsyncConnection, session: str, span: PositionSpan) -> None:
        async def fetch(query: bytes, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
            return await (await connection.execute(query, parameters)).fetchall()

        events: list[Event] = []
        async for event in read_events(fetch, compute_session_uuid(session), (span,)):
            events.append(event)
            if len(events) == MESSAGES_PER_INDEX_BATCH:
                await write_search_index_rows(connection, compute_session_uuid(session), events)
                events = []
        await write_search_index_rows(connection, compute_session_uuid(session), events)
