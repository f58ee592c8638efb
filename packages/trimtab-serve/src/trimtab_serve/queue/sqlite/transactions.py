"""Transactions of the server's database, for statements that are written in PostgreSQL's SQL."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from sqlite3 import Connection, Error
from typing import TYPE_CHECKING, Any, TypeVar

from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.sqlite.queries import encode_name
from trimtab_serve.queue.transactions import ResultRows, Transaction

if TYPE_CHECKING:
    from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

T = TypeVar("T")

SQLITE_FORMS = (
    # The file has no schemas.
    (r"\btrimtab\.", ""),
    # A transaction that writes has the database to itself.
    (r"\s+FOR UPDATE( SKIP LOCKED)?", ""),
    (r"pg_advisory_xact_lock\(.*\)", "$1"),
    # A list is a JSON text. The names in it are UTF-8 bytes, as in the tables.
    (r"= ANY \((\$\d+)::text\[\]\)", r"IN (SELECT CAST(value AS BLOB) FROM json_each(\1))"),
    (r"<> ALL \((\$\d+)::text\[\]\)", r"NOT IN (SELECT CAST(value AS BLOB) FROM json_each(\1))"),
    # Bytes in it are hexadecimal.
    (r"= ANY \((\$\d+)::bytea\[\]\)", r"IN (SELECT unhex(value) FROM json_each(\1))"),
    (r"= ANY \((\w+)\)", r"IN (SELECT value FROM json_each(\1))"),
    (r"\$(\d+)", r"?\1"),
)
"""Patterns in PostgreSQL's SQL, and what SQLite reads instead."""


class SqliteTransactions:
    """The `Transactions` of a queue's database."""

    def __init__(self, queue: SqliteMessageQueue) -> None:
        self._queue = queue
        self.errors: tuple[type[Exception], ...] = (Error, _KeysNotLookedUp)

    async def transact(
        self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, erases: bool = False
    ) -> T:
        in_log: dict[tuple[str, str], bool | BaseException] = {}

        def run(connection: Connection) -> tuple[T, set[str]]:
            transaction = _SqliteTransaction(connection, self._queue, in_log)
            return _run_at_once(work(transaction)), transaction.sessions

        def report(outcome: tuple[T, set[str]]) -> None:
            for session in outcome[1]:
                self._queue.on_posted(session)

        while True:
            try:
                return (await self._queue.database.write(run, then=report, erases=erases))[0]
            except _KeysNotLookedUp as error:
                lookups = map(self._queue.is_in_log, error.messages)
                answers = await asyncio.gather(*lookups, return_exceptions=True)
                keys = [(one.session, one.key) for one in error.messages]
                in_log |= zip(keys, answers, strict=True)

    async def fetch(self, sql: str, *values: object, many: bool = False) -> ResultRows:
        database = self._queue.database
        statement, parameters = _translate(sql), _encode_values(values)
        return await (database.scan if many else database.read)(
            lambda reader: reader.execute(statement, parameters).fetchall()
        )


class _KeysNotLookedUp(Exception):
    """It must be known whether the log has these messages, and a transaction cannot wait."""

    def __init__(self, messages: Sequence[InboundMessage]) -> None:
        self.messages = messages
        super().__init__()


@dataclass(slots=True)
class _SqliteTransaction:
    _connection: Connection
    _queue: SqliteMessageQueue
    _in_log: Mapping[tuple[str, str], bool | BaseException]
    sessions: set[str] = field(default_factory=set[str])
    """The sessions of the messages that were posted."""

    async def fetch(self, sql: str, *values: object) -> ResultRows:
        return self._connection.execute(_translate(sql), _encode_values(values)).fetchall()

    async def execute(self, sql: str, *values: object) -> int:
        return self._connection.execute(_translate(sql), _encode_values(values)).rowcount

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        self._connection.executemany(_translate(sql), map(_encode_values, rows))

    async def post(self, messages: Sequence[InboundMessage]) -> None:
        unknown = [one for one in messages if (one.session, one.key) not in self._in_log]
        if unknown:
            raise _KeysNotLookedUp(unknown)
        for one in messages:
            answer = self._in_log[one.session, one.key]
            if isinstance(answer, BaseException):
                raise answer
            if not answer:
                self._queue.post_in_transaction(self._connection, one)
                self.sessions.add(one.session)


@cache
def _translate(sql: str) -> str:
    for pattern, form in SQLITE_FORMS:
        sql = re.sub(pattern, form, sql)
    return sql


def _encode_values(values: Sequence[object]) -> list[Any]:
    return [_encode_value(value) for value in values]


def _encode_value(value: Any) -> Any:
    if isinstance(value, str):
        return encode_name(value)
    return json.dumps(value, default=bytes.hex) if isinstance(value, list) else value


def _run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("a transaction of SQLite may only wait for its own statements")
