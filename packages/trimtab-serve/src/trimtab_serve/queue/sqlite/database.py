"""The SQLite database of one machine, in a folder beside the sessions.

    .server/server.db  waiting messages, replies to send, schedules
    .server/lock       the process that serves

One connection writes. Writes that arrive during a commit share the next commit, each in its own
savepoint, so one that fails does not affect the others. A write is on the disk when its caller
gets the result (write-ahead log, `synchronous=FULL`). Readers have their own connections and see
what was committed.

Statements run in the event loop and take microseconds. Only work that waits for the disk (commits,
checkpoints) or for another process runs in a thread. In a thread, each statement would wait for the
interpreter lock, which a busy process gives only every few milliseconds.

Erased data must not remain in any byte of any file. `secure_delete` overwrites what is deleted. It
does not overwrite the copies that SQLite leaves in a page when it moves rows, nor the write-ahead
log. So before an erasure is acknowledged, the database is vacuumed and the log is truncated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

from trimtab.errors import SessionLockedByOtherProcess, StoreError, StoreUnavailable
from trimtab.stores.files.disk import (
    FILE_MODE,
    fsync_folder,
    make_private_folder,
    open_private_file,
    translate_write_errors,
)
from trimtab.stores.files.lock import FolderLock, find_lock_holder
from trimtab_serve.queue.sqlite.errors import (
    build_damage_error,
    translate_sqlite_error,
    write_probe_file,
)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Uses a connection. For a write, this happens inside a transaction."""

SERVER_FOLDER = ".server"
"""Name of the folder beside the sessions. No session's folder begins with a dot."""
DATABASE_NAME = "server.db"
SCHEMA_VERSION = 1
"""Version of the tables: `PRAGMA user_version`."""
MIN_SQLITE_VERSION = (3, 24, 0)
"""The first version with `ON CONFLICT DO UPDATE`."""
BUSY_TIMEOUT_S = 5.0
"""Seconds to wait for another process that writes."""
MAX_WRITES_PER_COMMIT = 1_000
FOREIGN_WRITE_POLL_S = 1.0
"""Seconds between two checks whether another process has written."""
MAX_LOG_BYTES = 16_777_216
"""Bytes that the write-ahead log keeps after a burst."""
CLOSED_TEXT = "the queue is closed; open it again to serve from this folder"

_log = logging.getLogger("trimtab.server")


class QueueInUse(SessionLockedByOtherProcess):
    """Another process serves from this folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        """Its process id, or `unknown`."""
        super().__init__(
            f"process {holder} serves {folder}, and only one process can serve a folder. Stop that "
            "process. To serve with several processes, store the sessions in PostgreSQL"
        )


class Database(Protocol):
    """The database interface that the queue and the schedules use."""

    on_foreign_write: list[Callable[[], None]]
    """Called when another process has written."""

    async def write(
        self,
        work: Work[T],
        *,
        then: Callable[[T], None] | None = None,
        erases: bool = False,
    ) -> T:
        """Run `work` in a transaction. When this returns, the result is on the disk.

        `then` gets the result as soon as it is on the disk, also if the caller no longer waits.
        With `erases`, what was deleted is no longer in any file.
        """
        ...

    async def read(self, work: Work[T]) -> T:
        """Read a few committed rows."""
        ...

    async def scan(self, work: Work[T]) -> T:
        """Read many committed rows without blocking others."""
        ...

    async def check_writable(self) -> None:
        """Raise the error that a write would have now."""
        ...

    async def close(self) -> None:
        """Finish the queued writes, and release the folder for another process."""
        ...


@dataclass(slots=True, eq=False)
class _Write:
    work: Work[Any]
    done: asyncio.Future[Any]
    then: Callable[[Any], None] | None
    erases: bool
    result: Any = None
    error: Exception | None = None


class SqliteDatabase:
    """Created by `open`, released by `close`."""

    def __init__(self, folder: Path, lock: FolderLock | None, *, fsync: bool) -> None:
        self.on_foreign_write: list[Callable[[], None]] = []
        self._folder = folder
        self._path = folder / DATABASE_NAME
        self._log_path = folder / f"{DATABASE_NAME}-wal"
        self._lock = lock
        self._is_purged = False
        """Whether nothing that was deleted is left in the database. See also `_is_log_empty`."""
        left_over = not self._is_log_empty()
        self._held = contextlib.ExitStack()
        with contextlib.ExitStack() as connections:
            self._writer, self._reader, self._scanner = (
                connections.enter_context(contextlib.closing(connect(self._path, fsync=fsync)))
                for _ in range(3)
            )
            prepare_tables(self._writer, self._path)
            if lock is not None:
                self._check_damage()
            if lock is not None and left_over:
                self._purge_after_crash()
            self._data_version = self._read_data_version()
            self._held = connections.pop_all()
        # Code that has to wait does so in a thread.
        self._writer.execute("PRAGMA busy_timeout=0")
        self._commit_thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-queue-commit")
        self._scan_thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-queue-scan")
        self._handed_in: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None
        self._closing = False
        self._looked_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, root: Path, *, serve: bool = True, fsync: bool = True) -> SqliteDatabase:
        """Open the database of a store's folder.

        With `serve`, the process holds the folder until `close`. Other processes may still write to
        it. Raises `QueueInUse`, `LogDamaged` and `StoreUnavailable`.
        """
        folder = root / SERVER_FOLDER
        lock = await asyncio.to_thread(_prepare_folder, root, folder, serve, fsync)
        try:
            database = await asyncio.to_thread(cls, folder, lock, fsync=fsync)
        except BaseException as error:
            if lock is not None:
                lock.release()
            if isinstance(error, sqlite3.Error):
                raise translate_sqlite_error(error, folder / DATABASE_NAME) from error
            raise
        database._look_again_later()  # noqa: SLF001 - of this class
        return database

    async def write(
        self,
        work: Work[T],
        *,
        then: Callable[[T], None] | None = None,
        erases: bool = False,
    ) -> T:
        if self._closing:
            raise StoreUnavailable(CLOSED_TEXT)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        self._handed_in.append(_Write(work, outcome, then, erases))
        if self._writing is None:
            self._writing = loop.create_task(self._write_batches())
        return await outcome

    async def read(self, work: Work[T]) -> T:
        if self._closing:
            raise StoreUnavailable(CLOSED_TEXT)
        return self._look(self._reader, work)

    async def scan(self, work: Work[T]) -> T:
        if self._closing:
            raise StoreUnavailable(CLOSED_TEXT)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._scan_thread, self._look, self._scanner, work)

    async def check_writable(self) -> None:
        def begin(connection: sqlite3.Connection) -> None:
            """Do nothing: beginning the transaction is the check."""

        await self.write(begin)
        await asyncio.to_thread(write_probe_file, self._folder)

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        while self._writing is not None:
            await asyncio.wait([self._writing])
        await asyncio.to_thread(self._scan_thread.shutdown)
        await self._in_thread(self._held.close)
        self._commit_thread.shutdown(wait=False)
        if self._lock is not None:
            self._lock.release()

    def _look(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        try:
            return work(connection)
        except sqlite3.Error as error:
            raise translate_sqlite_error(error, self._path) from error

    async def _write_batches(self) -> None:
        try:
            while self._handed_in:
                batch = self._handed_in[:MAX_WRITES_PER_COMMIT]
                self._handed_in = self._handed_in[MAX_WRITES_PER_COMMIT:]
                await self._write_together(batch)
                _settle(batch)
                self._notice_foreign_writes()
        finally:
            self._writing = None

    async def _write_together(self, batch: Sequence[_Write]) -> None:
        try:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                await self._in_thread(self._begin_patiently)
            before = self._writer.total_changes
            for one in batch:
                _attempt(self._writer, one, self._path)
            if self._writer.total_changes == before:
                self._writer.execute("COMMIT")  # it is empty, so it does not touch the disk
            else:
                await self._in_thread(self._commit)
        except Exception as error:  # noqa: BLE001 - each of them is told
            with contextlib.suppress(sqlite3.Error):
                self._writer.rollback()
            failure = _translate(error, self._path)
            for one in batch:
                one.error = one.error or failure
            return
        if erasing := [one for one in batch if one.erases and one.error is None]:
            try:
                await self._in_thread(self._purge)
            except StoreError as error:
                # A caller that erases must not believe that it succeeded.
                for one in erasing:
                    one.error = error

    def _begin_patiently(self) -> None:
        """Wait for another process that writes."""
        with _busy_timeout(self._writer):
            self._writer.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self._writer.execute("COMMIT")

    def _purge(self) -> None:
        """Remove everything that was deleted from all files. Raises `StoreError`."""
        if self._is_purged and self._is_log_empty():
            return
        self._is_purged = False
        try:
            with _busy_timeout(self._writer):
                self._writer.execute("VACUUM")
                busy = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise translate_sqlite_error(error, self._path) from error
        if busy or not self._is_log_empty():
            raise StoreUnavailable(
                f"another process is reading {self._path}, so the erased data is still in "
                f"{self._log_path.name}: stop that process and try again"
            )
        self._is_purged = True

    def _check_damage(self) -> None:
        """Raise `LogDamaged` now, not later when a message reaches the damaged part."""
        (verdict,) = self._writer.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise build_damage_error(self._path, " ".join(verdict.split()))

    def _purge_after_crash(self) -> None:
        """Remove deleted data now, because a crash may have interrupted an erasure."""
        try:
            self._purge()
        except StoreError as error:
            _log.warning(
                "compacting %s failed; erased data may remain for now: %s", self._path, error
            )

    def _is_log_empty(self) -> bool:
        try:
            return self._log_path.stat().st_size == 0
        except FileNotFoundError:
            return True

    def _look_again_later(self) -> None:
        if self._writing is None:
            self._notice_foreign_writes()
        if not self._closing:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FOREIGN_WRITE_POLL_S, self._look_again_later)

    def _notice_foreign_writes(self) -> None:
        """Call the listeners if another process has written. Check only now and then."""
        now = time.monotonic()
        if self._closing or now - self._looked_at < FOREIGN_WRITE_POLL_S / 2:
            return
        self._looked_at = now
        with contextlib.suppress(sqlite3.Error):
            version = self._read_data_version()
            if version != self._data_version:
                self._data_version = version
                for listen in self.on_foreign_write:
                    listen()

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._commit_thread, work)

    def _read_data_version(self) -> int:
        """Return a number that changes when other connections commit."""
        return self._writer.execute("PRAGMA data_version").fetchone()[0]


def has_server_data(root: Path) -> bool:
    """Whether a store's folder has a queue or schedules."""
    return (root / SERVER_FOLDER).exists()


@contextlib.contextmanager
def _busy_timeout(connection: sqlite3.Connection) -> Generator[None]:
    """Wait for other processes during the block."""
    connection.execute(f"PRAGMA busy_timeout={int(1000 * BUSY_TIMEOUT_S)}")
    try:
        yield
    finally:
        connection.execute("PRAGMA busy_timeout=0")


def connect(path: Path | str, *, fsync: bool) -> sqlite3.Connection:
    """Open a connection to a file or to `:memory:`. The caller begins the transactions."""
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if fsync else 'OFF'}")
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("PRAGMA foreign_keys=ON")
        # VACUUM must not leave the data in a temporary file elsewhere.
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute(f"PRAGMA journal_size_limit={MAX_LOG_BYTES}")
        # SQLite has it since version 3.41.
        connection.create_function("unhex", 1, bytes.fromhex, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare_tables(connection: sqlite3.Connection, path: Path | str) -> None:
    """Create the tables if they do not exist. Raises `StoreUnavailable` if they are not those of
    this release."""
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        least_version = ".".join(map(str, MIN_SQLITE_VERSION))
        raise StoreUnavailable(
            f"the queue needs SQLite {least_version} or later; this Python has "
            f"{sqlite3.sqlite_version}"
        )
    # In one transaction, because another process may create the tables meanwhile.
    connection.execute("BEGIN")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.execute("COMMIT")
    if version > SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} has format version {version}, but this release reads {SCHEMA_VERSION}: "
            "upgrade trimtab to serve from this folder"
        )
    if tables:
        return
    sql = files("trimtab_serve.queue.sqlite").joinpath("tables.sql").read_text(encoding="utf-8")
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;"
    )


def _prepare_folder(root: Path, folder: Path, serve: bool, fsync: bool) -> FolderLock | None:
    """Create the folder and the file if they do not exist. With `serve`, return the lock."""
    path = folder / DATABASE_NAME
    if not serve and path.exists():
        return None
    with translate_write_errors(folder):
        make_private_folder(folder)
    try:
        lock = FolderLock(folder, SERVER_FOLDER)
    except SessionLockedByOtherProcess:
        if not serve and path.exists():
            return None
        raise QueueInUse(root, find_lock_holder(folder) or "unknown") from None
    try:
        with translate_write_errors(path):
            _make_private_database_file(path)
            if fsync:
                for each in (folder, root):
                    fsync_folder(each)
    except BaseException:
        lock.release()
        raise
    if serve:
        return lock
    lock.release()
    return None


def _make_private_database_file(path: Path) -> None:
    """Create the file before SQLite does. SQLite gives its mode to the files beside it."""
    try:
        os.close(open_private_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        # Do not open it: closing it would release the locks that this process holds on it.
        with contextlib.suppress(PermissionError):
            path.chmod(FILE_MODE)


def _attempt(connection: sqlite3.Connection, one: _Write, path: Path) -> None:
    """Run one write of a transaction. If it fails, it changes nothing, and the others continue."""
    connection.execute("SAVEPOINT one")
    try:
        one.result = one.work(connection)
    except Exception as error:
        if not connection.in_transaction:
            raise  # SQLite has undone the whole transaction, as when the disk is full
        connection.execute("ROLLBACK TO one")
        one.error = _translate(error, path)
    connection.execute("RELEASE one")


def _translate(error: Exception, path: Path) -> Exception:
    return translate_sqlite_error(error, path) if isinstance(error, sqlite3.Error) else error


def _settle(batch: Sequence[_Write]) -> None:
    """Report the outcome to each caller, except those that were cancelled."""
    for one in batch:
        if one.error is None and one.then is not None:
            one.then(one.result)
        if one.done.done():
            continue
        if one.error is None:
            one.done.set_result(one.result)
        else:
            one.done.set_exception(one.error)
