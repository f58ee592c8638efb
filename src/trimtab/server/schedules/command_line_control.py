"""What an operator does about schedules beside the processes that run them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from trimtab.errors import SessionLockedByOtherProcess, StoreUnavailable
from trimtab.server.queue.files import FileMessageQueue
from trimtab.server.schedules.command_files import (
    ScheduleControlRequest,
    write_schedule_command_file,
)
from trimtab.server.schedules.files import SCHEDULES_FOLDER, FileScheduleStore, read_schedule_state
from trimtab.server.schedules.protocol import ScheduleStore, execute_schedule_command
from trimtab.server.schedules.runner import SCHEDULE_POLL_S
from trimtab.server.schedules.schedule import Schedule, ScheduleRunLogEntry
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files import FileStore
from trimtab.stores.files.lock import find_lock_holder

FLEET_PACKAGES_HINT = "schedules on PostgreSQL need more packages: pip install 'trimtab[fleet]'"
COMMAND_TIMEOUT_S = 2 * SCHEDULE_POLL_S
"""Seconds that the process which runs the schedules has to do what it is asked."""
COMMAND_POLL_S = 0.1
"""Seconds between two looks at whether it has."""


class ScheduleAdmin(Protocol):
    """The schedules of a store, whoever runs them."""

    async def list_schedules(self) -> list[Schedule]:
        """All, by id."""
        ...

    async def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRunLogEntry]:
        """The run log of one or of all, the newest first."""
        ...

    async def execute(self, command: ScheduleControlRequest) -> bool:
        """Do it, and be sure that it is done; False where there is no such schedule."""
        ...


@asynccontextmanager
async def open_schedule_admin(location: str) -> AsyncGenerator[ScheduleAdmin]:
    """The schedules of a folder or a database."""
    if not is_database_address(location):
        # It says where to look where there is no such folder.
        await (await open_store(location, allow_new_folder=False)).close()
        yield _FileScheduleAdmin(Path(location))
        return
    try:
        from trimtab.server.queue.postgres import PostgresMessageQueue
        from trimtab.server.schedules.postgres import PostgresScheduleStore
    except ModuleNotFoundError as error:
        if error.name not in ("procrastinate", "psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(FLEET_PACKAGES_HINT) from error
    queue = await PostgresMessageQueue.connect(location)
    try:
        yield _DatabaseScheduleAdmin(
            PostgresScheduleStore(queue.borrow_connection, queue.post_in_transaction)
        )
    finally:
        await queue.close()


class _DatabaseScheduleAdmin:
    def __init__(self, schedules: ScheduleStore) -> None:
        self._schedules = schedules

    async def list_schedules(self) -> list[Schedule]:
        return await self._schedules.find(limit=100_000)

    async def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRunLogEntry]:
        return await self._schedules.list_runs(schedule_id=schedule_id, limit=limit)

    async def execute(self, command: ScheduleControlRequest) -> bool:
        return await execute_schedule_command(self._schedules, command)


class _FileScheduleAdmin:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def list_schedules(self) -> list[Schedule]:
        return (await read_schedule_state(self._root)).find()

    async def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRunLogEntry]:
        return (await read_schedule_state(self._root)).list_runs(schedule_id, limit)

    async def execute(self, command: ScheduleControlRequest) -> bool:
        if (await read_schedule_state(self._root)).get(command.schedule) is None:
            return False
        try:
            return await self._execute_here(command)
        except SessionLockedByOtherProcess:
            if find_lock_holder(self._root / SCHEDULES_FOLDER) is None:
                raise  # what serves there has no clock
            await self._submit_and_wait(command)
            return True

    async def _execute_here(self, command: ScheduleControlRequest) -> bool:
        """Nobody serves: what is posted waits until somebody does."""
        store = FileStore(self._root)
        queue: FileMessageQueue | None = None
        schedules: FileScheduleStore | None = None
        try:
            queue = await FileMessageQueue.open(store)
            schedules = await FileScheduleStore.open(
                self._root, post=queue.post, find_key=store.find_key
            )
            return await execute_schedule_command(schedules, command)
        finally:
            for held in (schedules, queue, store):
                if held is not None:
                    await held.close()

    async def _submit_and_wait(self, command: ScheduleControlRequest) -> None:
        """Ask the process that holds them, and wait until it has done it."""
        path = await asyncio.to_thread(
            write_schedule_command_file, self._root / SCHEDULES_FOLDER, command
        )
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while await asyncio.to_thread(path.exists):
            if time.monotonic() > deadline:
                path.unlink(missing_ok=True)
                raise StoreUnavailable(
                    f"the process that holds {self._root / SCHEDULES_FOLDER} has not done it in "
                    f"{COMMAND_TIMEOUT_S:g} seconds, so the command was withdrawn; is it stopped?"
                )
            await asyncio.sleep(COMMAND_POLL_S)
