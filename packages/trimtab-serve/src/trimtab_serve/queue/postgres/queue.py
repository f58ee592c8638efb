"""The message queue in PostgreSQL. One transaction stores a message and the turn that it
requires."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from procrastinate.jobs import Job
from psycopg import AsyncConnection
from psycopg.types.numeric import Float8, Int4, Int8

from trimtab.errors import StaleOwner, StoreNotWritable
from trimtab.stores.base import PoolUsage
from trimtab.stores.postgres.connection_pool import BorrowedConnection, ConnectionPool
from trimtab.stores.postgres.escaping import (
    compute_partition,
    compute_session_uuid,
    escape_for_text_column,
    unescape_from_text_column,
)
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage
from trimtab_serve.queue.postgres.erasure import PostgresErasableQueue
from trimtab_serve.queue.postgres.procrastinate_jobs import (
    JobKind,
    JobPayload,
    ProcrastinateJobQueue,
    RunningJob,
    add_job_queue_options,
    current_job,
    job_from_row,
)
from trimtab_serve.queue.postgres.queries import POST_BY_PARTITION, SERVER_QUERIES
from trimtab_serve.queue.postgres.rows import (
    build_reply_arrays,
    compute_prefix_range,
    compute_session_lock_key,
)
from trimtab_serve.queue.postgres.transactions import PostgresTransactions
from trimtab_serve.queue.protocol import (
    MAX_COUNTED_MESSAGES,
    MAX_INTERRUPTIONS,
    DeadLetterSession,
    WaitingTotals,
)
from trimtab_serve.queue.rows import encode_inbound_body, inbound_from_row, outbound_from_row
from trimtab_serve.queue.transactions import Transactions

MAX_COUNTED_RETRIES = 10_000
"""Maximum number of turns that wait for a retry that are counted."""
STRANDED_PAGE_MESSAGES = 2_000
"""Waiting messages that one look for messages without a job reads."""
WRITE_PROBE_MEMORY = "64kB"
"""The memory of the probe, which needs more. It is the least that PostgreSQL allows."""
REPLY_RETENTION_S = {"sent": 3_600.0, "refused": 30 * 86_400.0}
"""Seconds for which the key of a delivered reply, and an undeliverable reply, are kept."""
CLEANUP_BATCH_ROWS = 1_000
"""Rows that one statement deletes."""


class PostgresMessageQueue:
    """The `MessageQueue` for several processes. Created by `connect`, released by `close`."""

    def __init__(self, connections: ConnectionPool, job_queue: ProcrastinateJobQueue) -> None:
        self.job_queue = job_queue
        """The job queue for turns."""
        self.on_replies: Callable[[], None] = lambda: None
        """Called when this process has stored replies: `ReplyDelivery.wake`. Other processes
        poll."""
        self._connections = connections
        self._fetch = connections.fetch
        self._stranded_page_start = 0
        """The number of the waiting message after which `queue_stranded_sessions` goes on."""
        self._erasable = PostgresErasableQueue(connections)
        self.transactions: Transactions = PostgresTransactions(
            connections.borrow, self.post_in_transaction
        )

    @classmethod
    async def connect(cls, conninfo: str, *, max_size: int = 8, wait: float = 10.0) -> Self:
        """Open connections to a migrated database, as `PostgresStore.connect` does."""
        queue_conninfo = add_job_queue_options(conninfo)
        connections = await ConnectionPool.open(
            queue_conninfo, max_size=max_size, wait=wait, purpose="queue"
        )
        try:
            queue = await ProcrastinateJobQueue.open(conninfo, wait=wait)
        except BaseException:
            await connections.close()
            raise
        return cls(connections, queue)

    async def post(self, inbound: InboundMessage) -> bool:
        async with self.borrow_connection() as connection:
            return await self.post_in_transaction(inbound, connection)

    async def post_in_transaction(
        self, inbound: InboundMessage, connection: AsyncConnection
    ) -> bool:
        """Post in the caller's transaction, on a connection from `borrow_connection`."""
        values = [
            escape_for_text_column(inbound.session),
            escape_for_text_column(inbound.key),
            encode_inbound_body(inbound),
            compute_session_uuid(inbound.session),
            Int8(compute_session_lock_key(inbound.session)),
            *JobPayload(session=inbound.session).to_columns(),
        ]
        query = POST_BY_PARTITION[compute_partition(inbound.session)]
        [(is_stored,)] = await (await connection.execute(query, values)).fetchall()
        return is_stored

    def borrow_connection(self) -> BorrowedConnection:
        """Return a connection to the queue's tables, for an `async with` block."""
        return self._connections.borrow()

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        return await self._erasable.pending(session, after=after, limit=limit)

    async def find_waiting(self, session: str, key: str) -> InboundMessage | None:
        values = [escape_for_text_column(session), escape_for_text_column(key)]
        rows = await self._fetch(SERVER_QUERIES["find_waiting"], values)
        return inbound_from_row(rows[0]) if rows else None

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        values: list[Any] = [
            compute_session_uuid(session),
            Int8(epoch),
            escape_for_text_column(session),
            [*map(Int8, answered)],
        ]
        job = current_job.get()
        number = None if job is None else Int8(job.id)
        values += [*build_reply_arrays(replies), number]
        with _ending(job):
            newest, has_ended = (await self._fetch(SERVER_QUERIES["finish"], values))[0]
            if newest > epoch:
                raise StaleOwner(session, epoch, newest)
            if job is not None:
                job.ended = has_ended
        if replies:
            self.on_replies()

    async def list_waiting_sessions(self) -> list[str]:
        return [
            unescape_from_text_column(name)
            for (name,) in await self._fetch(SERVER_QUERIES["waiting"], [])
        ]

    async def measure_waiting(self, session: str) -> WaitingTotals:
        values = [escape_for_text_column(session)]
        ((messages, size),) = await self._fetch(SERVER_QUERIES["measure_waiting"], values)
        return WaitingTotals(messages=messages, bytes=size)

    async def search_waiting(self, prefix: str, text: str) -> list[str]:
        rows = await self._fetch(
            SERVER_QUERIES["search_waiting"], [*compute_prefix_range(prefix), text]
        )
        return [unescape_from_text_column(name) for (name,) in rows]

    async def depth(self, prefix: str = "", *, limit: int = MAX_COUNTED_MESSAGES) -> int:
        rows = await self._fetch(
            SERVER_QUERIES["depth"], [*compute_prefix_range(prefix), Int8(limit)]
        )
        return rows[0][0]

    async def oldest_waiting_at(self) -> float | None:
        rows = await self._fetch(SERVER_QUERIES["oldest_waiting"], [])
        return inbound_from_row(rows[0]).at if rows else None

    def pool_usage(self) -> PoolUsage:
        """The current use of the connection pool."""
        return self._connections.usage()

    async def count_waiting_retries(self) -> int:
        """Return how many sessions wait to retry their turn."""
        limit = Int8(MAX_COUNTED_RETRIES)
        return (await self._fetch(SERVER_QUERIES["waiting_retries"], [limit]))[0][0]

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        epoch_column = None if epoch is None else Int8(epoch)
        which = [
            compute_session_uuid(inbound.session),
            epoch_column,
            escape_for_text_column(inbound.session),
            Int8(inbound.number),
        ]
        values = [
            *which,
            escape_for_text_column(why),
            Float8(time.time()),
            *build_reply_arrays(replies),
        ]
        is_dead: bool = (await self._fetch(SERVER_QUERIES["give_up"], values))[0][0]
        if is_dead and replies:
            self.on_replies()
        return is_dead

    async def list_dead_letters(
        self, *, prefix: str = "", limit: int = 100
    ) -> list[DeadLetterSession]:
        rows = await self._fetch(
            SERVER_QUERIES["dead"], [*compute_prefix_range(prefix), Int8(limit)]
        )
        return [
            DeadLetterSession(
                session=unescape_from_text_column(name),
                why=unescape_from_text_column(why or ""),
                messages=queued_messages,
                at=at,
                replies=replies,
            )
            for name, why, queued_messages, at, replies in rows
        ]

    async def dead_letter_reason(self, session: str) -> str | None:
        rows = await self._fetch(SERVER_QUERIES["why_given_up"], [escape_for_text_column(session)])
        return unescape_from_text_column(rows[0][0]) if rows else None

    async def revive(self, session: str) -> bool:
        async with self._connections.borrow() as connection, connection.transaction():
            await connection.execute(
                SERVER_QUERIES["share_gate"], [Int8(compute_session_lock_key(session))]
            )
            cursor = await connection.execute(
                SERVER_QUERIES["revive"], [escape_for_text_column(session)]
            )
            has_replies, queued_messages = await cursor.fetchone() or (False, False)
            if has_replies and queued_messages:
                await self.job_queue.defer_job(connection, JobPayload(session=session))
        if has_replies:
            self.on_replies()
        return has_replies

    async def lease_replies(
        self, channels: Collection[str], *, limit: int, lease_s: float
    ) -> list[OutboundMessage]:
        values = [[*map(escape_for_text_column, channels)], Int8(limit), Float8(lease_s)]
        rows = await self._fetch(SERVER_QUERIES["outgoing"], values)
        return sorted(map(outbound_from_row, rows), key=lambda reply: reply.number)

    async def mark_delivered(self, number: int) -> None:
        await self._execute_named("delivered", Int8(number))

    async def postpone_reply(
        self, number: int, *, delay_s: float, why: str, maybe_sent: bool
    ) -> None:
        undone = Int4(0 if maybe_sent else 1)
        await self._execute_named(
            "put_off", Int8(number), Float8(delay_s), escape_for_text_column(why), undone
        )

    async def mark_undeliverable(self, number: int, why: str) -> None:
        await self._execute_named("refused", Int8(number), escape_for_text_column(why))

    async def forget_session(self, session: str) -> None:
        await self._erasable.forget_session(session)

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        await self._erasable.erase_messages(session, positions, keys)

    async def check_writable(self) -> None:
        rows = await self._fetch(SERVER_QUERIES["read_only"], [])
        if rows[0][0]:
            raise StoreNotWritable("the database is not writable: it is a standby or read-only")
        async with self._connections.borrow() as connection, connection.transaction():
            await connection.execute(SERVER_QUERIES["lower_memory"], [WRITE_PROBE_MEMORY])
            await connection.execute(SERVER_QUERIES["write_probe"])

    async def close(self) -> None:
        await self.job_queue.close()
        await self._connections.close()

    async def pending_after_open_posts(self, session: str, *, limit: int) -> list[InboundMessage]:
        """Return the waiting messages, after the open posts to this session have ended.

        Such a post may have seen a queued job that has started meanwhile, and so has queued none.
        """
        # Two statements, because the second must see what was committed before the first ended. In
        # psycopg's pipeline mode it would be one round trip, but twice the CPU time.
        await self._fetch(SERVER_QUERIES["pass_gate"], [Int8(compute_session_lock_key(session))])
        return await self.pending(session, limit=limit)

    async def defer_job(self, payload: JobPayload, *, delay_s: float = 0.0) -> bool:
        """Queue a job. Return False if one is already queued."""
        async with self._connections.borrow() as connection, connection.transaction():
            return await self.job_queue.defer_job(connection, payload, delay_s=delay_s)

    async def replace_queued_job(self, payload: JobPayload, *, delay_s: float) -> None:
        """Queue a job for later, and remove one that is queued for now."""
        is_job_new = False
        while not is_job_new:
            async with self._connections.borrow() as connection, connection.transaction():
                await connection.execute(SERVER_QUERIES["drop_queued"], [payload.lock])
                # Another process may have queued one in between and committed.
                is_job_new = await self.job_queue.defer_job(connection, payload, delay_s=delay_s)

    async def fetch_job(
        self,
        kind: JobKind,
        worker_id: int,
        *,
        excluded_tenants: Collection[str] = (),
        excluded_interrupted_tenants: Collection[str] = (),
        exclude_interrupted: bool = False,
    ) -> Job | None:
        """Begin the job that waits longest and is not excluded. Return None if there is none.

        Jobs that were interrupted can be excluded for some tenants, or all of them.
        """
        values = [
            kind,
            Int8(worker_id),
            [*excluded_tenants],
            [*excluded_interrupted_tenants],
            exclude_interrupted,
        ]
        rows = await self._fetch(SERVER_QUERIES["fetch_job"], values)
        return job_from_row(rows[0]) if rows else None

    async def hand_over_job(
        self, job_id: int, worker_id: int | None, payload: JobPayload, *, interrupted: bool
    ) -> int | None:
        """Replace a job that will not end by another one. Return None if the job has changed
        meanwhile.

        With `interrupted`, count that its process vanished or stalled, and return how often in a
        row this has happened. After `MAX_INTERRUPTIONS`, no other job is queued.
        """
        worker = None if worker_id is None else Int8(worker_id)
        async with self._connections.borrow() as connection, connection.transaction():
            cursor = await connection.execute(SERVER_QUERIES["drop_job"], [Int8(job_id), worker])
            if not cursor.rowcount:
                return None
            times = 0
            if interrupted:
                cursor = await connection.execute(
                    SERVER_QUERIES["count_interruption"], [payload.lock]
                )
                (times,) = await cursor.fetchone() or (0,)
            if times < MAX_INTERRUPTIONS:
                await self.job_queue.defer_job(connection, payload)
            return times

    async def end_interruptions(self, payload: JobPayload) -> None:
        """Forget that a job was interrupted, because it has ended."""
        await self._execute_named("end_interruptions", payload.lock)

    async def list_running_jobs(self, worker_ids: Collection[int]) -> set[int]:
        """Return the jobs that these workers run, according to the queue."""
        rows = await self._fetch(SERVER_QUERIES["begun"], [[*map(Int8, worker_ids)]])
        return {row[0] for row in rows}

    async def queue_stranded_sessions(self) -> int:
        """Queue jobs for messages that have none. Return how many were queued.

        It looks at one page of the waiting messages, and goes on while it finds such messages.
        """
        queued = 0
        while True:
            values = [Int8(self._stranded_page_start), Int8(STRANDED_PAGE_MESSAGES)]
            ((next_page_start, names),) = await self._fetch(SERVER_QUERIES["stranded"], values)
            for name in names:
                payload = JobPayload(session=unescape_from_text_column(name))
                queued += await self.defer_job(payload)
            self._stranded_page_start = next_page_start
            if not names or not next_page_start:
                return queued

    async def delete_expired_replies(self) -> None:
        """Delete replies that were delivered or refused long ago."""
        for state, seconds in REPLY_RETENTION_S.items():
            swept = CLEANUP_BATCH_ROWS
            while swept == CLEANUP_BATCH_ROWS:
                swept = await self._execute_named(
                    "tidy", state, Float8(seconds), Int8(CLEANUP_BATCH_ROWS)
                )

    async def _execute_named(self, query_name: str, *values: object) -> int:
        async with self._connections.borrow() as connection:
            return (await connection.execute(SERVER_QUERIES[query_name], values)).rowcount


@contextmanager
def _ending(job: RunningJob | None) -> Generator[None]:
    """Protect the running job from `_cancel_jobs` while it ends.

    It may leave the queue a moment before its own process knows.
    """
    if job is None:
        yield
        return
    before = job.over
    job.over = True
    try:
        yield
    except BaseException:
        job.over = before
        raise
    job.over = before or job.ended
