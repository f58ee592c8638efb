"""What an operator does about schedules beside the processes that run them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from trimtab.stores.choose import is_database, open_store
from trimtab.stores.errors import SessionBusy, StoreUnavailable
from trimtab.stores.files import FileStore
from trimtab.stores.files.lock import held_by
from trimtab.worker.files import FileMail
from trimtab.worker.schedules.asked import Asked, ask
from trimtab.worker.schedules.door import LOOK
from trimtab.worker.schedules.files import FOLDER, FileSchedules, look
from trimtab.worker.schedules.schedule import Run, Schedule
from trimtab.worker.schedules.schedules import Schedules, do

FLEET = "schedules on PostgreSQL need more packages: pip install 'trimtab[fleet]'"
PATIENCE = 2 * LOOK
"""Seconds that the process which runs the schedules has to do what it is asked."""
BEAT = 0.1
"""Seconds between two looks at whether it has."""


class Desk(Protocol):
    """The schedules of a store, whoever runs them."""

    async def find(self) -> list[Schedule]:
        """All, by id."""
        ...

    async def runs(self, schedule: str | None, limit: int) -> list[Run]:
        """The run log of one or of all, the newest first."""
        ...

    async def do(self, wanted: Asked) -> bool:
        """Do it, and be sure that it is done; False where there is no such schedule."""
        ...


@asynccontextmanager
async def desk(place: str) -> AsyncGenerator[Desk]:
    """The schedules of a folder or a database."""
    if not is_database(place):
        # It says where to look where there is no such folder.
        await (await open_store(place, new=False)).close()
        yield _Files(Path(place))
        return
    try:
        from trimtab.worker.postgres.mail import PostgresMail
        from trimtab.worker.schedules.postgres import PostgresSchedules
    except ModuleNotFoundError as error:
        if error.name not in ("procrastinate", "psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(FLEET) from error
    mail = await PostgresMail.connect(place)
    try:
        yield _Database(PostgresSchedules(mail.lend, mail.post_within))
    finally:
        await mail.close()


class _Database:
    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def find(self) -> list[Schedule]:
        return await self._schedules.find(limit=100_000)

    async def runs(self, schedule: str | None, limit: int) -> list[Run]:
        return await self._schedules.runs(schedule=schedule, limit=limit)

    async def do(self, wanted: Asked) -> bool:
        return await do(self._schedules, wanted)


class _Files:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def find(self) -> list[Schedule]:
        return (await look(self._root)).find()

    async def runs(self, schedule: str | None, limit: int) -> list[Run]:
        return (await look(self._root)).runs(schedule, limit)

    async def do(self, wanted: Asked) -> bool:
        if (await look(self._root)).get(wanted.schedule) is None:
            return False
        try:
            return await self._do_here(wanted)
        except SessionBusy:
            if held_by(self._root / FOLDER) is None:
                raise  # what serves there has no clock
            await self._let_do(wanted)
            return True

    async def _do_here(self, wanted: Asked) -> bool:
        """Nobody serves: what is posted waits until somebody does."""
        store = FileStore(self._root)
        mail: FileMail | None = None
        schedules: FileSchedules | None = None
        try:
            mail = await FileMail.open(store)
            schedules = await FileSchedules.open(
                self._root, post=mail.post, find_key=store.find_key
            )
            return await do(schedules, wanted)
        finally:
            for held in (schedules, mail, store):
                if held is not None:
                    await held.close()

    async def _let_do(self, wanted: Asked) -> None:
        """Ask the process that holds them, and wait until it has done it."""
        path = await asyncio.to_thread(ask, self._root / FOLDER, wanted)
        deadline = time.monotonic() + PATIENCE
        while await asyncio.to_thread(path.exists):
            if time.monotonic() > deadline:
                path.unlink(missing_ok=True)
                raise StoreUnavailable(
                    f"the process that holds {self._root / FOLDER} has not done it in "
                    f"{PATIENCE:g} seconds, and is asked no more; is it stopped?"
                )
            await asyncio.sleep(BEAT)
