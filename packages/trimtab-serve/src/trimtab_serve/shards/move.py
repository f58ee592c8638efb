"""Move a session from one database to another while both are served.

1. The target closes a place for it, so that nobody begins a session of this name there. All rows
   are copied while the session is still used.
2. The source closes it: from here on it takes no message, no event and no turn.
3. What has changed since the first copy is copied.
4. The source compares both copies, deletes its own and says where the session is. This commit
   decides: before it the session belongs to the source, after it to the target.
5. The target opens it, with a job for the messages that wait.

A process that is killed loses its lock on the source. Before step 4, the source then opens the
session again at the next request. After it, the session waits until the command is run again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, AsyncRawCursor, Error, errors
from psycopg.types.numeric import Float8, Int8

from trimtab.errors import SessionMoved, SessionNotFound, StoreError
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.error_translation import describe_database, translate_psycopg_error
from trimtab.stores.postgres.escaping import (
    compute_session_uuid,
    escape_for_text_column,
    unescape_from_text_column,
)
from trimtab.stores.postgres.migrations import check_schema_version
from trimtab.stores.postgres.moves import (
    CLOSED_EPOCH,
    compute_move_lock_key,
    compute_tenant_uuid,
)
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.postgres.procrastinate_jobs import (
    SUMMARY_QUEUE,
    JobPayload,
    add_job_queue_options,
)
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES
from trimtab_serve.queue.postgres.rows import compute_prefix_range, compute_session_lock_key
from trimtab_serve.shards.session_rows import (
    SHARD_QUERIES,
    SessionTable,
    copy_rows,
    delete_rows,
    list_session_tables,
    sum_rows,
)

WAIT_FOR_TURN_S = 30.0
"""Seconds in which a running turn can end. After that it is interrupted, and continues in the
target."""
TURN_POLL_S = 0.05
MAX_COPIES = 5
"""How often the rows are copied if something in the source still changes them."""
BOT_SESSION_PREFIXES = ("telegram:", "discord:")
"""Beginnings of the names of sessions that belong to a bot."""


class MoveRefused(StoreError):
    """The session cannot be moved. Nothing was changed."""


@dataclass(slots=True, kw_only=True)
class Shards:
    """The two databases of a move, with one connection to each."""

    source: AsyncConnection
    """Has the sessions before."""
    target: AsyncConnection
    """Has them afterwards."""
    target_shard: str
    """The name by which the proxy in front knows the target."""
    with_bots: bool = False
    """Whether to move also the sessions of bots and of schedules in agent.yaml."""
    wait_for_turn_s: float = WAIT_FOR_TURN_S
    """Seconds in which a running turn can end."""

    async def move_tenant(self, tenant: str) -> AsyncIterator[str]:
        """Copy the keys of a tenant, move all its sessions one by one, and yield each id.

        New sessions of the tenant begin in the target from now on. Raises `LookupError` if the
        source has nothing of the tenant and never had.
        """
        prefix = f"{tenant}/"
        if not self.with_bots:
            for session in await self._list_sessions(prefix):
                await self._refuse_configured(session)
        key = compute_tenant_uuid(prefix)
        key_count = await self._copy_api_keys(tenant)
        state, _, _ = await _fetch_state(self.source, key)
        if state is None and not key_count and not await self._list_sessions(prefix):
            raise LookupError(f"this database has neither sessions nor keys of tenant {tenant}")
        await self.target.execute(SHARD_QUERIES["drop_state"], [key])
        await self.source.execute(
            SHARD_QUERIES["set_state"], [key, "moved", self.target_shard, Int8(0)]
        )
        # Until none is left: one may have begun just before new ones were refused.
        while sessions := await self._list_sessions(prefix):
            for session in sessions:
                await self.move_session(session)
                yield session

    async def _copy_api_keys(self, tenant: str) -> int:
        """Copy the keys, so that callers can use the same ones there. Return their number."""
        cursor = await self.source.execute(SHARD_QUERIES["keys_of_tenant"], [tenant])
        rows = await cursor.fetchall()
        async with self.target.transaction():
            for row in rows:
                copies = await self.target.execute(SHARD_QUERIES["copy_key"], row)
                if not await copies.fetchone():
                    raise MoveRefused(
                        f"the other database has another key called {row[1]!r}; revoke one of the "
                        "two; nothing was moved"
                    )
        return len(rows)

    async def move_session(self, session: str) -> bool:
        """Move a session. Return False if it was moved before.

        Raises `SessionNotFound`, `SessionMoved` and `MoveRefused`.
        """
        lock = Int8(compute_move_lock_key(session))
        if not await _fetch_value(self.source, "lock_move", lock):
            raise MoveRefused(f"another process is moving session {session!r}")
        try:
            return await self._move_locked(session)
        finally:
            if not self.source.closed:
                await self.source.execute(SHARD_QUERIES["unlock_move"], [lock])

    async def _move_locked(self, session: str) -> bool:
        key = compute_session_uuid(session)
        state, shard, _ = await _fetch_state(self.source, key)
        if state == "moved" and shard == self.target_shard:
            return await self._open(session)
        if state == "moved":
            raise SessionMoved(session, shard)
        if state == "arriving":
            raise MoveRefused(
                f"session {session!r} has not arrived here yet; first run the command again that "
                "moves it here"
            )
        if not self.with_bots:
            await self._refuse_configured(session)
        if not await (await self.source.execute(SHARD_QUERIES["epoch"], [key])).fetchone():
            raise SessionNotFound(session)  # before a place is reserved, which would stay
        tables = await list_session_tables(self.source, session)
        await self._reserve_place(session)
        async with self.target.transaction():
            # Without the row of the session, which is still open here, and must not be there.
            rest = [table for table in tables if table.name != "sessions"]
            await copy_rows(self.source, self.target, rest)
        epoch = await self._close(session)
        for attempt in range(MAX_COPIES):
            if await self._hand_over(session, tables, epoch, whole=attempt > 0):
                return await self._open(session)
        raise StoreError(
            f"session {session!r} was not moved: its rows changed {MAX_COPIES} times while they "
            "were copied; try again"
        )

    async def _reserve_place(self, session: str) -> None:
        key = compute_session_uuid(session)
        name = escape_for_text_column(session)
        async with self.target.transaction():
            await self.target.execute(
                SERVER_QUERIES["pass_gate"], [Int8(compute_session_lock_key(session))]
            )
            state, _, _ = await _fetch_state(self.target, key)
            row = await (await self.target.execute(SHARD_QUERIES["epoch"], [key])).fetchone()
            if state is None and (row or await _fetch_value(self.target, "waits", name)):
                raise MoveRefused(
                    f"the other database has a session {session!r} of its own; delete one of the "
                    "two, or move another one"
                )
            if state == "leaving":
                raise MoveRefused(f"session {session!r} is being moved out of the other database")
            await self.target.execute(SHARD_QUERIES["close"], [key, name])
            await self.target.execute(SHARD_QUERIES["set_state"], [key, "arriving", None, Int8(0)])

    async def _close(self, session: str) -> int:
        """Close a session in the source, between two turns if possible. Return its epoch."""
        deadline = time.monotonic() + self.wait_for_turn_s
        while True:
            async with self.source.transaction():
                epoch = await self._try_close(session, wait=time.monotonic() < deadline)
            if epoch is not None:
                return epoch
            await asyncio.sleep(TURN_POLL_S)

    async def _try_close(self, session: str, *, wait: bool) -> int | None:
        """Close a session in the transaction of the caller. Return None if a turn is running."""
        key = compute_session_uuid(session)
        name = escape_for_text_column(session)
        # A post holds a share of the gate, and an append a share of the row.
        await self.source.execute(
            SERVER_QUERIES["pass_gate"], [Int8(compute_session_lock_key(session))]
        )
        row = await (await self.source.execute(SHARD_QUERIES["epoch"], [key])).fetchone()
        if row is None:
            raise SessionNotFound(session)
        if row[0] == CLOSED_EPOCH:
            return (await _fetch_state(self.source, key))[2]
        if wait and await _fetch_value(self.source, "is_turn_running", name):
            return None
        await self.source.execute(SHARD_QUERIES["set_state"], [key, "leaving", None, Int8(row[0])])
        await self.source.execute(SHARD_QUERIES["close"], [key, name])
        await self._drop_jobs(session)
        return row[0]

    async def _hand_over(
        self, session: str, tables: list[SessionTable], epoch: int, *, whole: bool
    ) -> bool:
        """Copy the rows and give up those of the source. Return False if both differ."""
        key = compute_session_uuid(session)
        name = escape_for_text_column(session)
        async with self.target.transaction():
            await copy_rows(self.source, self.target, tables, whole=whole)
            await self.target.execute(
                SHARD_QUERIES["set_state"], [key, "arriving", None, Int8(epoch)]
            )
            target_sums = await sum_rows(self.target, tables)
        try:
            async with self.source.transaction():
                # What changes after the rows were compared ends this transaction.
                await self.source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                if await sum_rows(self.source, tables) != target_sums:
                    return False
                await delete_rows(self.source, tables)
                await self.source.execute(SHARD_QUERIES["close"], [key, name])
                await self._drop_jobs(session)
                await self.source.execute(
                    SHARD_QUERIES["set_state"], [key, "moved", self.target_shard, Int8(epoch)]
                )
        except errors.SerializationFailure:
            return False
        return True

    async def _open(self, session: str) -> bool:
        """Open a session in the target. Return False if it is open."""
        key = compute_session_uuid(session)
        name = escape_for_text_column(session)
        async with self.target.transaction():
            cursor = await self.target.execute(SHARD_QUERIES["open"], [key])
            if await _fetch_value(self.target, "needs_turn", name):
                job = [*JobPayload(session=session).to_columns(), Float8(0.0)]
                await self.target.execute(SERVER_QUERIES["queue_job"], job)
            return bool(cursor.rowcount)

    async def _drop_jobs(self, session: str) -> None:
        payloads = JobPayload(session=session), JobPayload(session=session, kind=SUMMARY_QUEUE)
        locks = [payload.lock for payload in payloads]
        await self.source.execute(SHARD_QUERIES["drop_jobs"], [locks])

    async def _refuse_configured(self, session: str) -> None:
        """Raise an error for a session that a process of the source would use again."""
        address = parse_session_address(session)
        name = escape_for_text_column(session)
        is_chat = address is not None and address.name.startswith(BOT_SESSION_PREFIXES)
        if is_chat or await _fetch_value(self.source, "has_configured_schedule", name):
            raise MoveRefused(
                f"session {session!r} belongs to a "
                f"{'bot' if is_chat else 'schedule in agent.yaml'}, which the processes of this "
                "database run; stop them, then move it with --with-bots"
            )

    async def _list_sessions(self, prefix: str) -> list[str]:
        """Return the sessions of a tenant that have not arrived."""
        bounds = compute_prefix_range(prefix)
        cursor = await self.source.execute(SHARD_QUERIES["sessions_of_tenant"], [*bounds, "moved"])
        names = {name for (name,) in await cursor.fetchall()}
        cursor = await self.target.execute(SHARD_QUERIES["arriving_of_tenant"], [*bounds])
        names.update(name for (name,) in await cursor.fetchall())
        return [unescape_from_text_column(name) for name in sorted(names)]


@asynccontextmanager
async def open_shards(
    source: str, target: str, target_shard: str, *, with_bots: bool = False
) -> AsyncGenerator[Shards]:
    """Connect to two databases with the tables of this release."""
    async with _open_connection(source) as one, _open_connection(target) as other:
        if await _identify(one) == await _identify(other):
            raise MoveRefused("both addresses are of the same database; nothing was moved")
        yield Shards(source=one, target=other, target_shard=target_shard, with_bots=with_bots)


@asynccontextmanager
async def _open_connection(conninfo: str) -> AsyncGenerator[AsyncConnection]:
    place = describe_database(conninfo)
    try:
        async with await AsyncConnection.connect(
            add_connection_name(add_job_queue_options(conninfo), "move"),
            autocommit=True,
            cursor_factory=AsyncRawCursor,
        ) as connection:
            await check_schema_version(connection, place)
            # Rows are compared as text, so both databases must write it in the same way.
            await connection.execute(
                "SELECT set_config('TimeZone', 'UTC', false), "
                "set_config('DateStyle', 'ISO', false), "
                "set_config('extra_float_digits', '1', false), "
                "set_config('bytea_output', 'hex', false)"
            )
            yield connection
    except Error as error:
        raise translate_psycopg_error(error, place, may_have_written=False) or error from error


async def _identify(connection: AsyncConnection) -> tuple[Any, ...] | None:
    """Return what tells one database from another, even behind two addresses."""
    cursor = await connection.execute(
        "SELECT system_identifier, current_database() FROM pg_control_system()"
    )
    return await cursor.fetchone()


async def _fetch_state(
    connection: AsyncConnection, key: object
) -> tuple[str | None, str | None, int]:
    row = await (await connection.execute(SHARD_QUERIES["state"], [key])).fetchone()
    return row or (None, None, 0)


async def _fetch_value(connection: AsyncConnection, query_name: str, value: object) -> Any:
    row = await (await connection.execute(SHARD_QUERIES[query_name], [value])).fetchone()
    return None if row is None else row[0]
