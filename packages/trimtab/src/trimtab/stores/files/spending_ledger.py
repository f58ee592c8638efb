"""The costs of model calls in a small SQLite file, for one machine, or in memory."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from trimtab.errors import StoreUnavailable
from trimtab.stores.files.disk import make_private_folder, translate_write_errors
from trimtab.stores.forks import keep_unused, leave_at_fork
from trimtab.stores.named_queries import split_named_queries
from trimtab.stores.spending import CallReservation, CostCeilings, refuse_above_ceiling

LEDGER_VERSION = 1
"""Version of the tables: `PRAGMA user_version`."""
BUSY_TIMEOUT_S = 30.0
"""Seconds to wait for another process that writes."""

_QUERIES = split_named_queries(
    files("trimtab.stores.files").joinpath("spending.sql").read_text(encoding="utf-8")
)


class SqliteSpendingLedger:
    """The `SpendingLedger` of one machine. Several processes may share the file.

    If `path` is None, it is kept in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._last_day = ""
        leave_at_fork(self)

    async def reserve(self, call: CallReservation, ceilings: CostCeilings) -> int:
        return await asyncio.to_thread(self._reserve, call, ceilings)

    async def settle(self, reservation: int, micros: int) -> None:
        await asyncio.to_thread(self._settle, reservation, micros)

    async def find_tenant_total(self, tenant: str, day: str) -> int:
        return await asyncio.to_thread(self._find_tenant_total, tenant, day)

    async def reset_session(self, session: str, session_log_micros: int) -> None:
        await asyncio.to_thread(self._reset_session, session, session_log_micros)

    def forget_session(self, session: str) -> None:
        """Remove what is known about a session. Its share of a day's total stays."""
        if self._path is not None and not self._path.exists():
            return
        with self._transaction() as db:
            db.execute(_QUERIES["forget_session"], [session])
            db.execute(_QUERIES["forget_reservations_of_session"], [session])

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            if self._connection is not None and self._path is not None:
                self._connection.close()
                self._connection = None

    def leave_to_parent(self) -> None:
        """Begin without the connection and the lock of the parent process."""
        self._lock = threading.Lock()
        if self._path is not None:
            keep_unused(self._connection)
            self._connection = None

    def _reserve(self, call: CallReservation, ceilings: CostCeilings) -> int:
        tenant = [call.day, call.tenant]
        day = [call.day, call.agent]
        with self._transaction() as db:
            if call.day != self._last_day:
                for name in ("forget_days", "forget_tenants", "forget_reservations"):
                    db.execute(_QUERIES[name])
                self._last_day = call.day
            if ceilings.session is not None:
                log = [call.session, call.session_log_micros]
                db.execute(_QUERIES["raise_session_to_log"], log)
                total = _fetch_number(db, "session_total", [call.session, call.now])
                refuse_above_ceiling("session", ceilings.session, total, call.micros)
            if ceilings.tenant_per_day is not None:
                total = _fetch_number(db, "tenant_total", tenant)
                refuse_above_ceiling("tenant_per_day", ceilings.tenant_per_day, total, call.micros)
                db.execute(_QUERIES["add_to_tenant"], [*tenant, call.micros])
            if ceilings.day is not None:
                total = _fetch_number(db, "day_total", day)
                refuse_above_ceiling("day", ceilings.day, total, call.micros)
                db.execute(_QUERIES["add_to_day"], [*day, call.micros])
            row = [
                *day,
                None if ceilings.tenant_per_day is None else call.tenant,
                None if ceilings.session is None else call.session,
                ceilings.day is not None,
                call.micros,
                call.now + call.expires_after_s,
            ]
            return _fetch_number(db, "reserve", row)

    def _settle(self, reservation: int, micros: int) -> None:
        with self._transaction() as db:
            row = db.execute(_QUERIES["release"], [reservation]).fetchone()
            if row is None:
                return
            day, agent, tenant, session, counts_for_day, reservation_micros = row
            db.execute(_QUERIES["add_to_session"], [session, micros])
            if tenant is not None:
                db.execute(_QUERIES["add_to_tenant"], [day, tenant, micros - reservation_micros])
            if counts_for_day:
                db.execute(_QUERIES["add_to_day"], [day, agent, micros - reservation_micros])

    def _find_tenant_total(self, tenant: str, day: str) -> int:
        with self._transaction() as db:
            return _fetch_number(db, "tenant_total", [day, tenant])

    def _reset_session(self, session: str, session_log_micros: int) -> None:
        with self._transaction() as db:
            db.execute(_QUERIES["raise_session_to_log"], [session, session_log_micros])
            db.execute(_QUERIES["reset_session"], [session])

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """Run a transaction. Only one writer, in any process, works at a time."""
        with self._lock:
            try:
                db = self._connection = self._connection or self._open()
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreUnavailable(
                    f"{self._path} cannot be used ({error}), so the spending so far is "
                    "unknown; check the disk"
                ) from error

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            with translate_write_errors(self._path):
                make_private_folder(self._path.parent)
                self._path.touch(mode=0o600)
        db = sqlite3.connect(
            self._path or ":memory:",
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > LEDGER_VERSION:
            db.close()
            raise StoreUnavailable(
                f"{self._path} has format version {version}, but this release reads "
                f"{LEDGER_VERSION}: upgrade trimtab"
            )
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")
        for name, query in _QUERIES.items():
            if name.startswith("create_"):
                db.execute(query)
        if version < LEDGER_VERSION:
            db.execute(f"PRAGMA user_version = {LEDGER_VERSION}")
        return db


def _fetch_number(db: sqlite3.Connection, query: str, given: Sequence[Any]) -> int:
    # All rows: a statement that is not read to its end holds the transaction open.
    rows: list[tuple[int]] = db.execute(_QUERIES[query], given).fetchall()
    return rows[0][0] if rows else 0
