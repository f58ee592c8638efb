"""The job queue for turns: Procrastinate in its own schema.

At most one job of a session is queued and at most one runs, because the session is both its `lock`
and its `queueing_lock`. All jobs have the same priority, because a higher one would overtake within
a lock. Only the retry of a turn is queued for later, because such a job blocks its session.

A job that was interrupted, because its process vanished or stalled, is marked in the table
`interruptions`. A process runs one such job at a time, so a job that kills its process takes no
innocent job with it again.

Correctness never depends on this queue. A takeover deletes the job and queues another one, so when
the first job ends late, it finds nothing to end. The epoch of the turn rejects everything that a
stale worker writes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
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
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.connection_pool import has_unread_message
from trimtab.stores.postgres.error_translation import (
    MIGRATE_HINT,
    describe_database,
    translate_psycopg_error,
)
from trimtab.stores.postgres.escaping import escape_for_text_column, unescape_from_text_column
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES

JOB_QUEUE_SCHEMA = "trimtab_queue"
"""Schema of Procrastinate's tables. Other Procrastinate tables in the database are not used."""
TURN_QUEUE = "turns"
SUMMARY_QUEUE = "summaries"
TASK_NAMES = {TURN_QUEUE: "trimtab:turn", SUMMARY_QUEUE: "trimtab:summary"}
"""Name of the task of each queue."""
IDLE_TRANSACTION_TIMEOUT_S = 10
"""Seconds after which the server drops a client that is silent inside a transaction."""
TCP_TIMEOUT_S = 30
"""Seconds of silence after which this process drops the connection to the server."""

JobKind = Literal["turns", "summaries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPayload:
    """The content of a job."""

    session: str
    """The session whose turn or summary is due."""
    kind: JobKind = TURN_QUEUE
    """The queue of the job."""
    tries: int = 0
    """Number of failed attempts."""
    failing_since: float = 0.0
    """When the provider began to fail, in seconds since the epoch. 0 if it does not fail."""
    interrupted: bool = False
    """Whether its last run was interrupted, according to the database. It is not stored here."""

    @property
    def is_retry(self) -> bool:
        """Whether the job has failed before."""
        return bool(self.tries or self.failing_since)

    @property
    def lock(self) -> str:
        """Return the lock against a second job of this kind. A summary does not block the session's
        turns."""
        name = escape_for_text_column(self.session)
        return name if self.kind == TURN_QUEUE else f"summary {name}"

    def to_columns(self) -> list[str]:
        """Return the queue, task, lock and arguments as they are stored."""
        return [self.kind, TASK_NAMES[self.kind], self.lock, json.dumps(self.to_json())]

    def to_json(self) -> dict[str, Any]:
        counts = {"tries": self.tries, "failing_since": self.failing_since}
        nonzero_counts = {name: count for name, count in counts.items() if count}
        return {"session": escape_for_text_column(self.session), **nonzero_counts}


@dataclass(slots=True, kw_only=True)
class RunningJob:
    """A job that runs in this process."""

    id: int
    """Id of the job."""
    worker_id: int
    """Id of its worker."""
    task: asyncio.Task[Any]
    """Used to cancel the job."""
    stalled: bool = False
    """Whether it was cancelled because the event loop stalled, which it may have caused."""
    over: bool = False
    """Whether it was cancelled, or has done everything except reporting its end."""
    ended: bool = False
    """Whether the queue knows that it has ended, because the end of the turn reported it."""


current_job: ContextVar[RunningJob | None] = ContextVar("current_job", default=None)
"""The job that the running code belongs to."""


JOB_COLUMNS = (
    "id",
    "status",
    "priority",
    "lock",
    "queueing_lock",
    "task_name",
    "args",
    "scheduled_at",
    "queue_name",
    "attempts",
    "worker_id",
)
"""The columns that `fetch_job` returns."""


def job_from_row(row: Sequence[Any]) -> Job:
    """Return the job of a row with these columns."""
    return Job.from_row(dict(zip(JOB_COLUMNS, row, strict=True)))


def tenant_of_job(job: Job) -> str:
    """Return the tenant of one of our jobs, as the database spells it."""
    return str(job.task_kwargs["session"]).partition("/")[0]


def is_interrupted_job(job: Job) -> bool:
    """Whether the last run of a fetched job was interrupted."""
    return "interrupted" in job.task_kwargs


def parse_job_payload(job: Job) -> JobPayload | None:
    """Return the content of one of our jobs. None for any other job."""
    kind = next((kind for kind, task in TASK_NAMES.items() if task == job.task_name), None)
    if kind is None:
        return None
    arguments: dict[str, Any] = {**job.task_kwargs}
    arguments["session"] = unescape_from_text_column(arguments["session"])
    return JobPayload(**arguments, kind=TURN_QUEUE if kind == TURN_QUEUE else SUMMARY_QUEUE)


class ProcrastinateJobQueue:
    """Procrastinate's app, and the queries that add our jobs to it."""

    def __init__(self, app: App, conninfo: str) -> None:
        self.app = app
        """The app that workers use."""
        self.conninfo = conninfo
        """Connection string with the job queue's schema in its search path."""

    @classmethod
    async def open(
        cls, conninfo: str, *, max_size: int = 4, wait: float = 10.0
    ) -> ProcrastinateJobQueue:
        """Connect to a migrated database, with enough connections for the workers of a process."""
        place = describe_database(conninfo)
        queue_conninfo = add_job_queue_options(conninfo)
        connector = PsycopgConnector(
            conninfo=add_connection_name(queue_conninfo, "jobs"),
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
            has_tables = await app.check_connection_async()
        except Error as error:
            await app.close_async()
            raise translate_psycopg_error(error, place, may_have_written=False) or error from error
        if not has_tables:
            await app.close_async()
            raise DatabaseNotMigrated(f"{place} has no tables for the job queue; {MIGRATE_HINT}")
        return cls(app, queue_conninfo)

    async def defer_job(
        self, connection: AsyncConnection, payload: JobPayload, *, delay_s: float = 0.0
    ) -> bool:
        """Queue a job in the caller's transaction. Return False if one is already queued."""
        values = [*payload.to_columns(), Float8(delay_s)]
        return bool((await connection.execute(SERVER_QUERIES["queue_job"], values)).rowcount)

    async def close(self) -> None:
        """Close the connections."""
        await self.app.close_async()


async def _commit_each_statement(connection: AsyncConnection) -> None:
    """Use autocommit: Procrastinate runs one statement per transaction, and this saves two round
    trips."""
    await connection.set_autocommit(True)


def _create_pool(**options: Any) -> AsyncConnectionPool[AsyncConnection]:
    """Create a pool that checks its connections locally. Procrastinate's pool asks the server each
    time."""
    options["check"] = _check_alive
    return AsyncConnectionPool(**options)


async def _check_alive(connection: AsyncConnection) -> None:
    if has_unread_message(connection):
        await connection.close()  # otherwise the pool would lend it again
        raise OperationalError("the server has closed the connection")


def add_job_queue_options(conninfo: str) -> str:
    """Return the connection string with the job queue's schema and with timeouts for lost peers."""
    parameters = conninfo_to_dict(conninfo)
    options = (
        f"-c search_path={JOB_QUEUE_SCHEMA} -c "
        f"idle_in_transaction_session_timeout={IDLE_TRANSACTION_TIMEOUT_S}s"
    )
    own_options = parameters.get("options")
    parameters["options"] = f"{own_options} {options}" if own_options else options
    parameters.setdefault("tcp_user_timeout", TCP_TIMEOUT_S * 1000)
    parameters.setdefault("keepalives_idle", TCP_TIMEOUT_S)
    return make_conninfo("", **parameters)
