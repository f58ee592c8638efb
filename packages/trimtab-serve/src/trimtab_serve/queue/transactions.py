"""The interface of transactions in the server's database, for statements that are written once.

A part of the server writes its statements in PostgreSQL's SQL. `sqlite/transactions.py` says what
SQLite reads instead.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from trimtab_serve.queue.messages import InboundMessage

T = TypeVar("T")
ResultRows = list[tuple[Any, ...]]


class Transaction(Protocol):
    """What one transaction does. All of it happens, or nothing."""

    async def fetch(self, sql: str, *values: object) -> ResultRows:
        """Return the rows of a statement."""
        ...

    async def execute(self, sql: str, *values: object) -> int:
        """Return how many rows a statement has inserted, changed or deleted."""
        ...

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement for each of these rows of values, in order."""
        ...

    async def post(self, messages: Sequence[InboundMessage]) -> None:
        """Post the messages whose keys are new, as `MessageQueue.post` does."""
        ...


class Transactions(Protocol):
    """Begins transactions. Every method may raise `StoreUnavailable`."""

    errors: tuple[type[Exception], ...]
    """What a statement raises inside a transaction. `transact` must get it."""

    async def transact(
        self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, erases: bool = False
    ) -> T:
        """Run `work` in a transaction. It awaits nothing else, and may be run again.

        With `erases`, what was deleted is no longer in any file.
        """
        ...

    async def fetch(self, sql: str, *values: object, many: bool = False) -> ResultRows:
        """Return committed rows. With `many`, reading them does not block others."""
        ...
