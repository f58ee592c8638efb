"""The queue of turns: Procrastinate's, in a schema of its own.

At most one job of a session is queued and at most one runs: its `lock` and its `queueing_lock` are
both the session. All jobs have one priority, for a higher one would overtake within a lock. Nothing
but a turn's own next attempt is queued for later, for that holds the session back.

Correctness never rests on the queue. A job that is taken over goes away and another takes its
place, so the late end of the first finds nothing to end; and whatever a stale worker writes is
refused by the turn's epoch.
"""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job
from psycopg import AsyncConnection, Error, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Float8
from psycopg_pool import AsyncConnectionPool

from trimtab.errors import DatabaseNotMigrated
from trimtab.server.postgres.message_queue_and_job_queries import SERVER_QUERIES
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.connection_pool import has_unread_message
from trimtab.stores.postgres.error_translation import (
    MIGRATE_HINT,
    describe_database,
    translate_psycopg_error,
)
from trimtab.stores.postgres.session_keys_and_text_escaping import (
    escape_for_text_column,
    unescape_from_text_column,
)

JOB_QUEUE_SCHEMA = "trimtab_queue"
"""Where Procrastinate's tables are: another one's beside ours are left alone."""
TURN_QUEUE, SUMMARY_QUEUE = "turns", "summaries"
TASK_NAMES = {TURN_QUEUE: "trimtab:turn", SUMMARY_QUEUE: "trimtab:summary"}
"""By queue, the name of its task."""
IDLE_TRANSACTION_TIMEOUT_S = 10
"""Seconds after which the server gives up a client that does not answer in mid-transaction."""
TCP_TIMEOUT_S = 30
"""Seconds of silence after which we give up the server."""

JobKind = Literal["turns", "summaries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPayload:
    """What a job says."""

    session: str
    """Whose turn, or summary, is due."""
    kind: JobKind = TURN_QUEUE
    """The queue it is in."""
    tries: int = 0
    """Attempts that have failed."""
    taken: int = 0
    """Times that it was taken over from a worker that had died."""
    put_off: int = 0
    """Times in a row that it found its tenant at its limit."""
    failing_since: float = 0.0
    """When the provider began to fail, in seconds since the epoch; 0 if it does not."""

    @property
    def was_put_off(self) -> bool:
        """Whether this is not the first that is heard of the turn."""
        return bool(self.tries or self.taken or self.put_off or self.failing_since)

    @property
    def lock(self) -> str:
        """What keeps two of the kind apart. A summary does not hold its session's turns back."""
        name = escape_for_text_column(self.session)
        return name if self.kind == TURN_QUEUE else f"summary {name}"

    def to_columns(self) -> list[str]:
        """Its queue, its task, its lock and its arguments, as they are stored."""
        return [self.kind, TASK_NAMES[self.kind], self.lock, json.dumps(self.to_json())]

    def to_json(self) -> dict[str, Any]:
        told = {
            "tries": self.tries,
            "taken": self.taken,
            "put_off": self.put_off,
            "failing_since": self.failing_since,
        }
        given = {name: count for name, count in told.items() if count}
        return {"session": escape_for_text_column(self.session), **given}


@dataclass(slots=True, kw_only=True)
class RunningJob:
    """A job that runs in this process."""

    id: int
    """Its number."""
    worker_id: int
    """Whose it is."""
    task: asyncio.Task[Any]
    """What can be broken off."""
    over: bool = False
    """Whether it was, or has done all but tell the queue."""
    ended: bool = False
    """Whether the queue knows that it has ended: the turn's own end has told it."""


current_job: ContextVar[RunningJob | None] = ContextVar("current_job", default=None)
"""The job that the running code is part of."""


def parse_job_payload(job: Job) -> JobPayload | None:
    """What a job of ours says; None for a job that is another's."""
    kind = next((kind for kind, task in TASK_NAMES.items() if task == job.task_name), None)
    if kind is None:
        return None
    told: dict[str, Any] = {**job.task_kwargs}
    told["session"] = unescape_from_text_column(told["session"])
    return JobPayload(**told, kind=TURN_QUEUE if kind == TURN_QUEUE else SUMMARY_QUEUE)


class ProcrastinateJobQueue:
    """Procrastinate's app, and how our jobs get into it."""

    def __init__(self, app: App, conninfo: str) -> None:
        self.app = app
        """For workers."""
        self.conninfo = conninfo
        """For connections that see the queue's tables."""

    @classmethod
    async def open(
        cls, conninfo: str, *, max_size: int = 4, wait: float = 10.0
    ) -> ProcrastinateJobQueue:
        """Connect to a migrated database; as many connections as workers of a process need."""
        place, found = describe_database(conninfo), add_job_queue_options(conninfo)
        connector = PsycopgConnector(
            conninfo=add_connection_name(found, "jobs"),
            min_size=1,
            max_size=max_size,
            timeout=wait,
            name="trimtab: queue",
            configure=_commit_each_statement,
            pool_factory=_create_pool,
        )
        app = App(connector=connector)
        try:
            await app.open_async()
            migrated = await app.check_connection_async()
        except Error as error:
            await app.close_async()
            raise translate_psycopg_error(error, place, may_have_written=False) or error from error
        if not migrated:
            await app.close_async()
            raise DatabaseNotMigrated(
                f"{place} has no tables for the queue of turns; {MIGRATE_HINT}"
            )
        return cls(app, found)

    async def defer_job(
        self, connection: AsyncConnection, payload: JobPayload, *, delay_s: float = 0.0
    ) -> bool:
        """Queue a job within the caller's transaction; False where one is queued already."""
        values = [*payload.to_columns(), Float8(delay_s)]
        return bool((await connection.execute(SERVER_QUERIES["queue_job"], values)).rowcount)

    async def close(self) -> None:
        """Give the connections back."""
        await self.app.close_async()


async def _commit_each_statement(connection: AsyncConnection) -> None:
    """Procrastinate has one statement a transaction: BEGIN and COMMIT are two round trips more."""
    await connection.set_autocommit(True)


def _create_pool(**options: Any) -> AsyncConnectionPool[AsyncConnection]:
    """A pool that looks whether its server has gone, where Procrastinate's asks it each time."""
    options["check"] = _check_alive
    return AsyncConnectionPool(**options)


async def _check_alive(connection: AsyncConnection) -> None:
    if has_unread_message(connection):
        await connection.close()  # else the pool would take it back, and lend it again
        raise OperationalError("the server has closed the connection")


def add_job_queue_options(conninfo: str) -> str:
    """The same database with the queue's tables in sight, and without endless waits for peers
    that were cut off."""
    told = conninfo_to_dict(conninfo)
    options = (
        f"-c search_path={JOB_QUEUE_SCHEMA} -c "
        f"idle_in_transaction_session_timeout={IDLE_TRANSACTION_TIMEOUT_S}s"
    )
    given = told.get("options")
    told["options"] = f"{given} {options}" if given else options
    told.setdefault("tcp_user_timeout", TCP_TIMEOUT_S * 1000)
    told.setdefault("keepalives_idle", TCP_TIMEOUT_S)
    return make_conninfo("", **told)
