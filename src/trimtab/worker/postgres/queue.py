"""The queue of turns: Procrastinate's, in a schema of its own.

At most one job of a session is queued and at most one runs: its `lock` and its `queueing_lock` are
both the session. All jobs have one priority, for a higher one would overtake within a lock. Nothing
but a turn's own next attempt is queued for later, for that holds the session back.

Correctness never rests on the queue. A job that is taken over goes away and another takes its
place, so the late end of the first finds nothing to end; and whatever a stale worker writes is
refused by the turn's epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.jobs import Job
from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor, Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from trimtab.stores.errors import NotMigrated
from trimtab.stores.postgres.errors import MIGRATE, place_of, translated
from trimtab.stores.postgres.names import read, written

SCHEMA = "trimtab_queue"
"""Where Procrastinate's tables are: another one's beside ours are left alone."""
TURNS, SUMMARIES = "turns", "summaries"
TASKS = {TURNS: "trimtab:turn", SUMMARIES: "trimtab:summary"}
"""By queue, the name of its task."""
GONE = 10
"""Seconds after which the server gives up a client that does not answer in mid-transaction."""
SILENT = 30
"""Seconds of silence after which we give up the server."""

Kind = Literal["turns", "summaries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a job says."""

    session: str
    """Whose turn, or summary, is due."""
    kind: Kind = TURNS
    """The queue it is in."""
    tries: int = 0
    """Attempts that have failed."""
    taken: int = 0
    """Times that it was taken over from a worker that had died."""
    put_off: int = 0
    """Times in a row that it found its tenant at its limit."""

    @property
    def lock(self) -> str:
        """What keeps two of the kind apart. A summary does not hold its session's turns back."""
        name = written(self.session)
        return name if self.kind == TURNS else f"summary {name}"

    def to_json(self) -> dict[str, Any]:
        told = {"tries": self.tries, "taken": self.taken, "put_off": self.put_off}
        given = {name: count for name, count in told.items() if count}
        return {"session": written(self.session), **given}


def due_of(job: Job) -> Due | None:
    """What a job of ours says; None for a job that is another's."""
    kind = next((kind for kind, task in TASKS.items() if task == job.task_name), None)
    if kind is None:
        return None
    told: dict[str, Any] = {**job.task_kwargs}
    told["session"] = read(told["session"])
    return Due(**told, kind=TURNS if kind == TURNS else SUMMARIES)


class Queue:
    """Procrastinate's app, and how our jobs get into it."""

    def __init__(self, app: App, conninfo: str) -> None:
        self.app = app
        """For workers."""
        self.conninfo = conninfo
        """For connections that see the queue's tables."""

    @classmethod
    async def open(cls, conninfo: str, *, max_size: int = 4, wait: float = 10.0) -> Queue:
        """Connect to a migrated database; as many connections as workers of a process need."""
        place, found = place_of(conninfo), with_queue(conninfo)
        connector = PsycopgConnector(
            conninfo=found, min_size=1, max_size=max_size, timeout=wait, name="trimtab: queue"
        )
        app = App(connector=connector)
        try:
            await app.open_async()
            migrated = await app.check_connection_async()
        except Error as error:
            await app.close_async()
            raise translated(error, place, writes=False) or error from error
        if not migrated:
            await app.close_async()
            raise NotMigrated(f"{place} has no tables for the queue of turns; {MIGRATE}")
        return cls(app, found)

    async def defer(self, connection: AsyncConnection, due: Due, *, wait: float = 0.0) -> bool:
        """Queue a job within the caller's transaction; False where one is queued already.

        That one is refused within a savepoint: else the whole transaction would be undone.
        """
        task = self.app.configure_task(
            TASKS[due.kind],
            queue=due.kind,
            lock=due.lock,
            queueing_lock=due.lock,
            connection=connection,
            schedule_in={"milliseconds": round(wait * 1000)} if wait else None,
        )
        try:
            async with connection.transaction():
                # Procrastinate writes its parameters as psycopg's own cursors have them.
                connection.cursor_factory = AsyncCursor
                try:
                    await task.defer_async(**due.to_json())
                finally:
                    connection.cursor_factory = AsyncRawCursor
        except AlreadyEnqueued:
            return False
        except ConnectorException as error:
            raise (error.__cause__ if isinstance(error.__cause__, Error) else error) from error
        return True

    async def close(self) -> None:
        """Give the connections back."""
        await self.app.close_async()


def with_queue(conninfo: str) -> str:
    """The same database with the queue's tables in sight, and without endless waits for peers
    that were cut off."""
    told = conninfo_to_dict(conninfo)
    options = f"-c search_path={SCHEMA} -c idle_in_transaction_session_timeout={GONE}s"
    given = told.get("options")
    told["options"] = f"{given} {options}" if given else options
    told.setdefault("tcp_user_timeout", SILENT * 1000)
    told.setdefault("keepalives_idle", SILENT)
    return make_conninfo("", **told)
