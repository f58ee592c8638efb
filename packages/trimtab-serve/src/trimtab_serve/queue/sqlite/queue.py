"""The message queue of one machine, in the database beside the sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from sqlite3 import Connection
from typing import Any, Protocol

from trimtab.errors import StaleOwner
from trimtab.stores.files import FileStore
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage
from trimtab_serve.queue.protocol import MAX_COUNTED_MESSAGES, DeadLetterSession, WaitingTotals
from trimtab_serve.queue.rows import inbound_from_row, inbound_from_rows, outbound_from_row
from trimtab_serve.queue.sqlite import rows as sqlite_rows
from trimtab_serve.queue.sqlite.database import Database, SqliteDatabase
from trimtab_serve.queue.sqlite.queries import (
    SQLITE_QUERIES,
    compute_name_range,
    decode_name,
    encode_list,
    encode_name,
)
from trimtab_serve.queue.sqlite.rows import (
    end_reply,
    give_up_session,
    insert_message,
    insert_reply,
    remove_messages,
)
from trimtab_serve.queue.sqlite.transactions import SqliteTransactions
from trimtab_serve.queue.transactions import Transactions

MAX_KEPT_REPLIES = {"sent": 10_000, "refused": 1_000}
"""Number of the newest replies that are kept.

Delivered replies are kept for their keys, because a turn that runs again does so soon.
Undeliverable replies are kept for the operator.
"""
REPLIES_BETWEEN_CLEANUPS = 1_000
MAX_ANSWERED_KEYS = 10_000
"""Number of keys of recently answered messages that are remembered."""


class SessionLogs(Protocol):
    """The part of a store that the queue needs."""

    async def find_key(self, session: str, key: str) -> int | None:
        """Return the position of a key in a session's log. None if it is not there."""
        ...

    async def latest_epoch(self, session: str) -> int:
        """Return the epoch of the newest claimed turn. 0 if there is none."""
        ...

    async def position(self, session: str) -> int:
        """Return the last position of a session's log. 0 if there is no log."""
        ...


class SqliteMessageQueue:
    """The `MessageQueue` for one process. Created by `open`, released by `close`."""

    def __init__(
        self,
        database: Database,
        store: SessionLogs,
        on_posted: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.on_posted = on_posted
        """Called with the session of each posted message, whichever process posted it."""
        self.on_replies: Callable[[], None] = lambda: None
        """Called when replies were stored: `ReplyDelivery.wake`."""
        self.database = database
        """The database of the queue."""
        self.transactions: Transactions = SqliteTransactions(self)
        self._store = store
        self._clock = clock
        self._answered = BoundedDict[tuple[str, str], None](MAX_ANSWERED_KEYS)
        """Session and key of messages whose rows were removed since the last search in the log."""
        self._replies_to_cleanup = 0
        self._newest_number = 0
        self._looking: asyncio.Task[None] | None = None
        database.on_foreign_write.append(self._look_for_foreign_posts)

    @classmethod
    async def open(
        cls,
        store: FileStore,
        on_posted: Callable[[str], None] = lambda _: None,
        *,
        serve: bool = True,
        fsync: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> SqliteMessageQueue:
        """Open the queue of a store's folder.

        Without `serve`, a process may post to it beside the process that serves. Raises
        `QueueInUse` and `LogDamaged`.
        """
        database = await SqliteDatabase.open(store.root, serve=serve, fsync=fsync)
        queue = cls(database, store, on_posted, clock=clock)
        if serve:
            queue._newest_number = await database.write(_end_loans)
        return queue

    async def post(self, inbound: InboundMessage) -> bool:
        if await self.is_in_log(inbound):
            return False
        return await self.database.write(
            lambda connection: self.post_in_transaction(connection, inbound),
            then=lambda kept: self.on_posted(inbound.session) if kept else None,
        )

    def post_in_transaction(self, connection: Connection, inbound: InboundMessage) -> bool:
        """Post in the caller's transaction. Call `is_in_log` before."""
        if (inbound.session, inbound.key) in self._answered:
            return False
        return insert_message(connection, inbound) is not None

    async def is_in_log(self, inbound: InboundMessage) -> bool:
        """Whether the session's log has the message, so that it was or is being answered."""
        return await self._store.find_key(inbound.session, inbound.key) is not None

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        rows = await self._fetch("pending", encode_name(session), after, limit)
        return await inbound_from_rows(rows)

    async def find_waiting(self, session: str, key: str) -> InboundMessage | None:
        rows = await self._fetch("find_waiting", encode_name(session), encode_name(key))
        return inbound_from_row(rows[0]) if rows else None

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        newest = await self._store.latest_epoch(session)
        if epoch < newest:
            raise StaleOwner(session, epoch, newest)
        replies_to_store = replies if await self._store.position(session) else ()

        def finish(connection: Connection) -> None:
            for key in remove_messages(connection, session, answered):
                self._answered[session, key] = None
            self._keep_replies(connection, replies_to_store)

        await self.database.write(
            finish, then=lambda _: self.on_replies() if replies_to_store else None
        )

    async def list_waiting_sessions(self) -> list[str]:
        return [decode_name(name) for (name,) in await self._scan("waiting")]

    async def measure_waiting(self, session: str) -> WaitingTotals:
        ((messages, size),) = await self._scan("measure_waiting", encode_name(session))
        return WaitingTotals(messages=messages, bytes=size)

    async def search_waiting(self, prefix: str, text: str) -> list[str]:
        rows = await self._scan("search_waiting", *compute_name_range(prefix), text)
        return [decode_name(name) for (name,) in rows]

    async def depth(
        self,
        prefix: str = "",
        *,
        limit: int = MAX_COUNTED_MESSAGES,  # noqa: ARG002 - a thread counts them all
    ) -> int:
        return (await self._scan("depth", *compute_name_range(prefix)))[0][0]

    async def count_waiting_replies(self) -> int:
        """Return how many replies are neither delivered nor abandoned."""
        return (await self._scan("waiting_replies"))[0][0]

    async def oldest_waiting_at(self) -> float | None:
        rows = await self._fetch("oldest_waiting")
        return inbound_from_row(rows[0]).at if rows else None

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        if epoch is not None and epoch < await self._store.latest_epoch(inbound.session):
            return False

        def give_up(connection: Connection) -> bool:
            is_dead = give_up_session(
                connection, inbound.session, inbound.number, why, self._clock()
            )
            self._keep_replies(connection, replies if is_dead else ())
            return is_dead

        return await self.database.write(
            give_up, then=lambda is_dead: self.on_replies() if is_dead and replies else None
        )

    async def list_dead_letters(
        self, *, prefix: str = "", limit: int = 100
    ) -> list[DeadLetterSession]:
        rows = await self._scan("dead", *compute_name_range(prefix), limit)
        return [
            DeadLetterSession(
                session=decode_name(name),
                why=decode_name(why or b""),
                messages=messages,
                at=at,
                replies=replies,
            )
            for name, why, messages, at, replies in rows
        ]

    async def dead_letter_reason(self, session: str) -> str | None:
        rows = await self._fetch("why_given_up", encode_name(session))
        return decode_name(rows[0][0]) if rows else None

    async def revive(self, session: str) -> bool:
        name = encode_name(session)

        def again(connection: Connection) -> tuple[bool, bool]:
            has_replies = sqlite_rows.revive_session(connection, session)
            (waits,) = connection.execute(SQLITE_QUERIES["has_messages"], [name]).fetchone()
            return has_replies, bool(has_replies and waits)

        def tell(found: tuple[bool, bool]) -> None:
            has_replies, waits = found
            if waits:
                self.on_posted(session)
            if has_replies:
                self.on_replies()

        return (await self.database.write(again, then=tell))[0]

    async def lease_replies(
        self, channels: Collection[str], *, limit: int, lease_s: float
    ) -> list[OutboundMessage]:
        now = self._clock()
        parameters = [encode_list(channels), now, limit]

        def lend(connection: Connection) -> list[tuple[Any, ...]]:
            rows = connection.execute(SQLITE_QUERIES["outgoing"], parameters).fetchall()
            # Stored before sending, so that after a crash it is known that it may have been sent.
            connection.executemany(
                SQLITE_QUERIES["lend"], [(number, now + lease_s) for number, _, _ in rows]
            )
            return rows

        return [outbound_from_row(row) for row in await self.database.write(lend)]

    async def mark_delivered(self, number: int) -> None:
        now = self._clock()
        await self.database.write(
            lambda connection: end_reply(connection, "delivered", number, now)
        )

    async def postpone_reply(
        self, number: int, *, delay_s: float, why: str, maybe_sent: bool
    ) -> None:
        until = self._clock() + delay_s
        undone = 0 if maybe_sent else 1
        values = [number, until, encode_name(why), undone]
        await self.database.write(
            lambda connection: connection.execute(SQLITE_QUERIES["put_off"], values).rowcount
        )

    async def mark_undeliverable(self, number: int, why: str) -> None:
        reason = encode_name(why)
        now = self._clock()
        await self.database.write(
            lambda connection: end_reply(connection, "refused", number, reason, now)
        )

    async def forget_session(self, session: str) -> None:
        def forget(connection: Connection) -> None:
            sqlite_rows.forget_session(connection, session)
            for name in [name for name in self._answered if name[0] == session]:
                del self._answered[name]

        await self.database.write(forget, erases=True)

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        await self.database.write(
            lambda connection: sqlite_rows.erase_messages(connection, session, positions, keys),
            erases=True,
        )

    async def check_writable(self) -> None:
        await self.database.check_writable()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self.database.close()

    def _keep_replies(self, connection: Connection, replies: Sequence[OutboundMessage]) -> None:
        """Store the replies with new keys, and drop the oldest delivered ones."""
        for reply in replies:
            insert_reply(connection, reply, self._clock())
        self._replies_to_cleanup += len(replies)
        if self._replies_to_cleanup >= REPLIES_BETWEEN_CLEANUPS:
            self._replies_to_cleanup = 0
            for state, most in MAX_KEPT_REPLIES.items():
                connection.execute(SQLITE_QUERIES["shorten_outbox"], [state, most])

    def _look_for_foreign_posts(self) -> None:
        """Request turns for messages that another process has posted."""

        async def look() -> None:
            rows = await self._scan("posted_since", self._newest_number)
            ((self._newest_number,),) = await self._fetch("newest_number")
            for (name,) in rows:
                self.on_posted(decode_name(name))

        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(look())

    async def _fetch(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        sql = SQLITE_QUERIES[query_name]
        return await self.database.read(lambda reader: reader.execute(sql, values).fetchall())

    async def _scan(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        sql = SQLITE_QUERIES[query_name]
        return await self.database.scan(lambda reader: reader.execute(sql, values).fetchall())


def _end_loans(connection: Connection) -> int:
    """Make replies due that an earlier process was sending. Return the newest number."""
    connection.execute(SQLITE_QUERIES["end_loans"])
    return connection.execute(SQLITE_QUERIES["newest_number"]).fetchone()[0]
