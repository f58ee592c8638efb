"""A queue in memory for tests: the queue of one machine on a database without a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from sqlite3 import Connection, OperationalError
from typing import TypeVar

from trimtab.engine.log.event import TurnProgressRecord
from trimtab.errors import SessionNotFound
from trimtab.stores.base import Store
from trimtab_serve.queue.sqlite.database import Work, connect, prepare_tables
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

T = TypeVar("T")


class MemoryDatabase:
    """A `Database` in memory. Each step runs at once, in the calling thread."""

    def __init__(self) -> None:
        self.on_foreign_write: list[Callable[[], None]] = []
        self._connection = connect(":memory:", fsync=False)
        prepare_tables(self._connection, ":memory:")

    async def write(
        self,
        work: Work[T],
        *,
        then: Callable[[T], None] | None = None,
        erases: bool = False,
    ) -> T:
        result = self._in_transaction(work)
        if then is not None:
            then(result)
        return result

    async def read(self, work: Work[T]) -> T:
        return work(self._connection)

    async def scan(self, work: Work[T]) -> T:
        return work(self._connection)

    async def check_writable(self) -> None:
        """Do nothing, because memory is always writable."""

    async def close(self) -> None:
        """Do nothing. What is in the queue stays, so that a test can open it again."""

    def _in_transaction(self, work: Callable[[Connection], T]) -> T:
        self._connection.execute("BEGIN")
        try:
            result = work(self._connection)
        except BaseException:
            with suppress(OperationalError):
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return result


class _LogsOfStore:
    """The logs of any store, read from outside."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find_key(self, session: str, key: str) -> int | None:
        return await self._store.find_key(session, key)

    async def position(self, session: str) -> int:
        return await self._store.position(session)

    async def latest_epoch(self, session: str) -> int:
        newest = 0
        with suppress(SessionNotFound):
            async for event in self._store.events(session):
                if isinstance(event.body, TurnProgressRecord):
                    newest = max(newest, event.body.epoch)
        return newest


class MemoryQueue(SqliteMessageQueue):
    """A queue that keeps every promise except to survive the process."""

    def __init__(
        self,
        store: Store,
        on_posted: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(MemoryDatabase(), _LogsOfStore(store), on_posted, clock=clock)
        self.store = store
        """The store of the sessions."""
