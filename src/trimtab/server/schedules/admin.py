"""What an operator does about schedules beside the processes that run them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from trimtab.errors import SessionBusy, StoreUnavailable
from trimtab.server.queue.files import FileQueue
from trimtab.server.schedules.commands import ScheduleCommand, submit_schedule_command
from trimtab.server.schedules.files import SCHEDULES_FOLDER, FileScheduleStore, read_schedule_state
from trimtab.server.schedules.runner import SCHEDULE_POLL_S
from trimtab.server.schedules.schedule import Schedule, ScheduleRun
from trimtab.server.schedules.store import ScheduleStore, execute_schedule_command
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

    async def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRun]:
        """The run log of one or of all, the newest first."""
        ...

    async def execute(self, command: ScheduleCommand) -> bool:
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
        from trimtab.server.queue.postgres import PostgresQueue
        from trimtab.server.schedules.postgres import PostgresScheduleStore
    except ModuleNotFoundError as error:
        if error.name not in ("procrastinate", "psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(FLEET_PACKAGES_HINT) from error
    mail = await PostgresQueue.connect(location)
    try:
        yield _DatabaseScheduleAdmin(
            PostgresScheduleStore(mail.borrow_connection, mail.post_in_transaction)
        )
    finally:
        await mail.close()


class _DatabaseScheduleAdmin:
    def __init__(self, schedules: ScheduleStore) -> None:
        self._schedules = schedules

    async def list_schedules(self) -> list[Schedule]:
        return await self._schedules.find(limit=100_000)

    async def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRun]:
        return await self._schedules.list_runs(schedule_id=schedule_id, limit=limit)

    async def execute(self, command: ScheduleCommand) -> bool:
        return await execute_schedule_command(self._schedules, command)


class _FileScheduleAdmin:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def list_schedules(self) -> list[Schedule]:
        return (await read_schedule_state(self._root)).find()

    async def list_runs(self, schedule_id: str | None, limit: int) -> list[ScheduleRun]:
        return (await read_schedule_state(self._root)).list_runs(schedule_id, limit)

    async def execute(self, command: ScheduleCommand) -> bool:
        if (await read_schedule_state(self._root)).get(command.schedule) is None:
            return False
        try:
            return await self._execute_here(command)
        except SessionBusy:
            if find_lock_holder(self._root / SCHEDULES_FOLDER) is None:
                raise  # what serves there has no clock
            await self._submit_and_wait(command)
            return True

    async def _execute_here(self, command: ScheduleCommand) -> bool:
        """Nobody serves: what is posted waits until somebody does."""
        store = FileStore(self._root)
        mail: FileQueue | None = None
        schedules: FileScheduleStore | None = None
        try:
            mail = await FileQueue.open(store)
            schedules = await FileScheduleStore.open(
                self._root, post=mail.post, find_key=store.find_key
            )
            return await execute_schedule_command(schedules, command)
        finally:
            for held in (schedules, mail, store):
                if held is not None:
                    await held.close()

    async def _submit_and_wait(self, command: ScheduleCommand) -> None:
        """Ask the process that holds them, and wait until it has done it."""
        path = await asyncio.to_thread(
            submit_schedule_command, self._root / SCHEDULES_FOLDER, command
        )
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while await asyncio.to_thread(path.exists):
            if time.monotonic() > deadline:
                path.unlink(missing_ok=True)
                raise StoreUnavailable(
                    f"the process that holds {self._root / SCHEDULES_FOLDER} has not done it in "
                    f"{COMMAND_TIMEOUT_S:g} seconds, and is asked no more; is it stopped?"
                )
            await asyncio.sleep(COMMAND_POLL_S)
