"""Mail in PostgreSQL: a letter and the turn that it wants are kept in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Self

from psycopg import AsyncConnection
from psycopg.types.numeric import Float8, Int4, Int8

from trimtab.stores.errors import StaleOwner
from trimtab.stores.postgres.names import partition_of, read, uuid_of, written
from trimtab.stores.postgres.pool import Borrowed, Connections
from trimtab.worker.letters import Inbound, Outbound
from trimtab.worker.mail import Dead
from trimtab.worker.postgres.forgetting import PostgresLetters
from trimtab.worker.postgres.queries import POST, QUERIES
from trimtab.worker.postgres.queue import Due, Queue, with_queue
from trimtab.worker.postgres.rows import (
    gate_of,
    letter_body,
    reply_of,
    reply_parameters,
    span_of,
)

MOST = 1_000_000
"""Letters that are counted."""
KEPT = {"sent": 3_600.0, "refused": 30 * 86_400.0}
"""Seconds that the key of a reply is known after it has left, and one that never will is kept."""
SWEPT = 1_000
"""Rows that are cleared away at once."""


class PostgresMail:
    """The `Mail` for many processes. Made by `connect`, given back by `close`."""

    def __init__(self, connections: Connections, queue: Queue) -> None:
        self.queue = queue
        """Where turns are due."""
        self.replied: Callable[[], None] = lambda: None
        """Called where replies were written here: `Delivery.due`. Others find them when they
        look."""
        self._connections = connections
        self._fetch = connections.fetch
        self._letters = PostgresLetters(connections)

    @classmethod
    async def connect(
        cls, conninfo: str, *, min_size: int = 1, max_size: int = 8, wait: float = 10.0
    ) -> Self:
        """Open connections to a migrated database, as `PostgresStore.connect` does."""
        found = with_queue(conninfo)
        connections = await Connections.open(found, min_size=min_size, max_size=max_size, wait=wait)
        try:
            queue = await Queue.open(conninfo, wait=wait)
        except BaseException:
            await connections.close()
            raise
        return cls(connections, queue)

    async def post(self, letter: Inbound) -> bool:
        async with self.lend() as connection, connection.transaction():
            return await self.post_within(letter, connection)

    async def post_within(self, letter: Inbound, connection: AsyncConnection) -> bool:
        """Post in the caller's transaction, on a connection from `lend`."""
        name, part = written(letter.session), partition_of(letter.session)
        values = [name, written(letter.key), letter_body(letter), uuid_of(letter.session)]
        await connection.execute(QUERIES["share_gate"], [Int8(gate_of(letter.session))])
        row = await (await connection.execute(POST[part], values)).fetchone()
        kept, queued = row or (False, False)
        if kept and not queued:
            await self.queue.defer(connection, Due(session=letter.session))
        return kept

    def lend(self) -> Borrowed:
        """A connection that sees the queue, for the length of an `async with`."""
        return self._connections.borrow()

    async def pending(self, session: str, *, after: int = 0, limit: int = 100) -> list[Inbound]:
        return await self._letters.pending(session, after=after, limit=limit)

    async def finish(
        self, session: str, epoch: int, taken: Collection[int], replies: Sequence[Outbound]
    ) -> None:
        values = [uuid_of(session), Int8(epoch), written(session), [*map(Int8, taken)]]
        rows = await self._fetch(QUERIES["finish"], [*values, *reply_parameters(replies)])
        newest: int = rows[0][0]
        if newest > epoch:
            raise StaleOwner(session, epoch, newest)
        if replies:
            self.replied()

    async def waiting(self) -> list[str]:
        return [read(name) for (name,) in await self._fetch(QUERIES["waiting"], [])]

    async def depth(self, prefix: str = "") -> int:
        rows = await self._fetch(QUERIES["depth"], [*span_of(prefix), Int8(MOST)])
        return rows[0][0]

    async def give_up(
        self, letter: Inbound, epoch: int | None, why: str, replies: Sequence[Outbound] = ()
    ) -> bool:
        known = None if epoch is None else Int8(epoch)
        which = [uuid_of(letter.session), known, written(letter.session), Int8(letter.number)]
        values = [*which, written(why), Float8(time.time()), *reply_parameters(replies)]
        given: bool = (await self._fetch(QUERIES["give_up"], values))[0][0]
        if given and replies:
            self.replied()
        return given

    async def dead(self, *, prefix: str = "", limit: int = 100) -> list[Dead]:
        rows = await self._fetch(QUERIES["dead"], [*span_of(prefix), Int8(limit)])
        return [
            Dead(session=read(name), why=read(why or ""), letters=letters, at=at, replies=replies)
            for name, why, letters, at, replies in rows
        ]

    async def why_given_up(self, session: str) -> str | None:
        rows = await self._fetch(QUERIES["why_given_up"], [written(session)])
        return read(rows[0][0]) if rows else None

    async def revive(self, session: str) -> bool:
        async with self._connections.borrow() as connection, connection.transaction():
            await connection.execute(QUERIES["share_gate"], [Int8(gate_of(session))])
            cursor = await connection.execute(QUERIES["revive"], [written(session)])
            revived, letters = await cursor.fetchone() or (False, False)
            if revived and letters:
                await self.queue.defer(connection, Due(session=session))
        if revived:
            self.replied()
        return revived

    async def outgoing(self, doors: Collection[str], *, limit: int, lease: float) -> list[Outbound]:
        values = [[*map(written, doors)], Int8(limit), Float8(lease)]
        rows = await self._fetch(QUERIES["outgoing"], values)
        return sorted(map(reply_of, rows), key=lambda reply: reply.number)

    async def delivered(self, number: int) -> None:
        await self._change("delivered", Int8(number))

    async def put_off(self, number: int, *, seconds: float, why: str, sent: bool) -> None:
        undone = Int4(0 if sent else 1)
        await self._change("put_off", Int8(number), Float8(seconds), written(why), undone)

    async def refused(self, number: int, why: str) -> None:
        await self._change("refused", Int8(number), written(why))

    async def forget(self, session: str) -> None:
        await self._letters.forget(session)

    async def erase(self, session: str, positions: Collection[int], keys: Collection[str]) -> None:
        await self._letters.erase(session, positions, keys)

    async def close(self) -> None:
        await self.queue.close()
        await self._connections.close()

    async def pass_gate(self, session: str) -> None:
        """Wait for all who post to this session and took a job for queued that has begun."""
        await self._fetch(QUERIES["pass_gate"], [Int8(gate_of(session))])

    async def defer(self, due: Due, *, wait: float = 0.0) -> bool:
        """Queue a job; False where one is queued already."""
        async with self._connections.borrow() as connection, connection.transaction():
            return await self.queue.defer(connection, due, wait=wait)

    async def defer_instead(self, due: Due, *, wait: float) -> None:
        """Queue a job for later in place of one that is queued for now, if there is."""
        done = False
        while not done:
            async with self._connections.borrow() as connection, connection.transaction():
                await connection.execute(QUERIES["drop_queued"], [due.lock])
                # Somebody may have queued one in between, and have committed.
                done = await self.queue.defer(connection, due, wait=wait)

    async def take_over(self, job: int, worker: int | None, due: Due | None) -> bool:
        """Put another job, or none, in the place of one whose worker is gone; False where the job
        has moved on."""
        async with self._connections.borrow() as connection, connection.transaction():
            cursor = await connection.execute(
                QUERIES["drop_job"], [Int8(job), None if worker is None else Int8(worker)]
            )
            if cursor.rowcount and due is not None:
                await self.queue.defer(connection, due)
            return bool(cursor.rowcount)

    async def begun(self, workers: Collection[int]) -> set[int]:
        """Jobs that these workers run, as the queue has it."""
        rows = await self._fetch(QUERIES["begun"], [[*map(Int8, workers)]])
        return {row[0] for row in rows}

    async def rescue(self, limit: int = 1_000) -> int:
        """Queue jobs for letters that have none; returns how many."""
        rows = await self._fetch(QUERIES["stranded"], [Int8(limit)])
        return sum([await self.defer(Due(session=read(name))) for (name,) in rows])

    async def tidy(self) -> None:
        """Clear away what has left, or was refused, long ago."""
        for state, seconds in KEPT.items():
            swept = SWEPT
            while swept == SWEPT:
                swept = await self._change("tidy", state, Float8(seconds), Int8(SWEPT))

    async def _change(self, query: str, *values: object) -> int:
        async with self._connections.borrow() as connection:
            return (await connection.execute(QUERIES[query], values)).rowcount
