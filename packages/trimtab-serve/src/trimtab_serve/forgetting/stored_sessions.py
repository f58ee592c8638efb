"""Erase stored sessions from the command line, outside the processes that serve them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trimtab.errors import SessionLockedByOtherProcess, StoreUnavailable
from trimtab.session.session import open_session_to_erase
from trimtab.stores.base import Store
from trimtab.stores.factory import is_database_address
from trimtab.stores.files import FileStore
from trimtab.stores.files.lock import find_lock_holder
from trimtab_serve.forgetting import control_files
from trimtab_serve.forgetting.erasure import (
    JOB_POLL_S,
    ShowProgress,
    finish_erasure,
    recorded_erasure,
    start_erasure,
    wait_for_erasure,
)
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.protocol import ErasableQueue, MessageQueue
from trimtab_serve.queue.sqlite.database import SERVER_FOLDER, QueueInUse, has_server_data
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.tools import build_erased_call_schedules_hook
from trimtab_serve.service.erasure_records import (
    BY_COMMAND_LINE,
    ErasureJob,
    ErasureRecords,
    FileErasureRecords,
)
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.message_erasure import EraseHook, build_queue_erase_hook
from trimtab_serve.service.message_erasure import erase_message_and_copies as erase_in
from trimtab_serve.service.service import AgentService

PrepareService = Callable[[AgentService], None]
"""Adds hooks to a service, so that data elsewhere is erased with it."""


def do_nothing_to(_: AgentService) -> None:
    """Add no hooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAndSchedules:
    """Places outside the log that may have data of a session."""

    queue: ErasableQueue | None = None
    """Messages and replies. None if there is no queue."""
    schedules: ScheduleStore | None = None
    """Schedules that its tools created. None if there is no schedule store."""
    records: ErasureRecords | None = None
    """The records of erasures. None if they are not recorded."""

    @property
    def erase_hooks(self) -> list[EraseHook]:
        """The hooks that erase a message in these places."""
        hooks = [build_queue_erase_hook(self.queue)] if self.queue is not None else []
        return (
            [*hooks, build_erased_call_schedules_hook(self.schedules)]
            if self.schedules is not None
            else hooks
        )


async def erase_stored_message(
    location: str, store: Store, session: str, handle: str, *, why: str = ""
) -> tuple[Sequence[str], Sequence[str]]:
    """Erase a message. Return the erased handles, and the forks that still have copies.

    If a process serves the folder, that process does it. Raises `LookupError`,
    `SessionLockedByOtherProcess`, and the errors of `send_control_request`.
    """
    try:
        async with open_queue_and_schedules(location, store, session) as stores:
            by = BY_COMMAND_LINE
            async with recorded_erasure(stores.records, "message", session, by=by) as totals:
                open_session = await open_session_to_erase(store, session)
                erasure = await erase_in(open_session, handle, why=why, hooks=stores.erase_hooks)
                totals.messages = len(erasure.positions)
            return erasure.handles, erasure.forks
    except QueueInUse:
        request = control_files.ControlRequest(
            verb="erase", session=session, handle=handle, why=why
        )
        answer = await control_files.send_control_request(Path(location), request)
        return answer["handles"], answer["forks"]
    except SessionLockedByOtherProcess as busy:
        raise SessionLockedByOtherProcess(
            f"{busy}. If that process is a chat, type there: /erase {handle}"
        ) from busy


async def delete_stored_session(location: str, store: Store, session: str) -> None:
    """Delete a session and its waiting messages. If a process serves the folder, that process does
    it."""
    try:
        async with (
            open_queue_and_schedules(location, store, session) as stores,
            recorded_erasure(stores.records, "session", session, by=BY_COMMAND_LINE) as totals,
        ):
            if stores.queue is not None and await stores.queue.pending(session, limit=1):
                # A turn may run in another process, and it must not add replies after this.
                open_session = await open_session_to_erase(store, session)
                await open_session.recorder.claim()
            if stores.schedules is not None:
                await stores.schedules.forget_session(session)
            if stores.queue is not None:
                await stores.queue.forget_session(session)
            await store.delete(session)
            totals.sessions = 1
    except QueueInUse:
        await control_files.send_control_request(
            Path(location), control_files.ControlRequest(verb="delete", session=session)
        )


async def erase_stored_data(
    location: str,
    store: Store,
    tenant: str,
    user: str,
    show_progress: ShowProgress,
    *,
    prepare: PrepareService = do_nothing_to,
) -> ErasureJob:
    """Erase a user of a tenant, or all of it. If a process serves the folder, that process does
    it."""
    try:
        async with open_idle_service(location, store) as service:
            prepare(service)
            job = await start_erasure(
                service.erasure_records, tenant, user=user, by=BY_COMMAND_LINE
            )
            return await finish_erasure(service, job, show_progress)
    except QueueInUse:
        root = Path(location)

        async def wait_for_server() -> None:
            await asyncio.sleep(JOB_POLL_S)
            if await asyncio.to_thread(find_lock_holder, root / SERVER_FOLDER) is None:
                raise StoreUnavailable(
                    f"the process that serves {root} has ended; it continues the erasure when it "
                    "starts again, or run this command again"
                )

        async with open_erasure_records(location, store) as records:
            job = await start_erasure(records, tenant, user=user, by=BY_COMMAND_LINE)
            return await wait_for_erasure(records, job, show_progress, wait_for_server)


@asynccontextmanager
async def open_idle_service(location: str, store: Store) -> AsyncGenerator[AgentService]:
    """Open sessions, queue, schedules and records like a server, without an agent that answers.

    Raises `QueueInUse` if a process serves the folder.
    """
    async with AsyncExitStack() as stack:
        if isinstance(store, FileStore):
            stores = await _open_folder_stores(store, stack, create=True)
        else:
            stores = await _open_database_stores(location, stack, with_jobs=True)
        queue = cast("MessageQueue", stores.queue)
        service = AgentService(agents={}, store=store, queue=queue, event_bus=LocalEventBus())
        assert stores.records is not None  # noqa: S101 - both kinds of stores have them
        service.erasure_records = stores.records
        service.schedules = stores.schedules
        if stores.schedules is not None:
            service.delete_hooks.append(stores.schedules.forget_session)
            service.erase_hooks.append(build_erased_call_schedules_hook(stores.schedules))
        stack.push_async_callback(service.sessions.close)
        yield service


@asynccontextmanager
async def open_erasure_records(location: str, store: Store) -> AsyncGenerator[ErasureRecords]:
    """Open the erasure records of a store."""
    async with AsyncExitStack() as stack:
        if isinstance(store, FileStore):
            yield FileErasureRecords(store.root)
        else:
            stores = await _open_database_stores(location, stack)
            assert stores.records is not None  # noqa: S101 - a database has them
            yield stores.records


@asynccontextmanager
async def open_queue_and_schedules(
    location: str, store: Store, session: str
) -> AsyncGenerator[QueueAndSchedules]:
    """Open the other places that have data of a session.

    Raises `QueueInUse` if a process serves the folder.
    """
    async with AsyncExitStack() as stack:
        if parse_session_address(session) is None:
            # It was never served, so there is no data elsewhere.
            if not isinstance(store, FileStore) and not is_database_address(location):
                yield QueueAndSchedules()  # in memory
                return
            async with open_erasure_records(location, store) as records:
                yield QueueAndSchedules(records=records)
        elif isinstance(store, FileStore):
            yield await _open_folder_stores(store, stack)
        else:
            yield await _open_database_stores(location, stack)


async def _open_folder_stores(
    store: FileStore, resources: AsyncExitStack, *, create: bool = False
) -> QueueAndSchedules:
    records = FileErasureRecords(store.root)
    if not create and not has_server_data(store.root):
        return QueueAndSchedules(records=records)
    queue = await SqliteMessageQueue.open(store)
    resources.push_async_callback(queue.close)
    schedules = ScheduleStore(queue.transactions)
    return QueueAndSchedules(queue=queue, schedules=schedules, records=records)


async def _open_database_stores(
    location: str, resources: AsyncExitStack, *, with_jobs: bool = False
) -> QueueAndSchedules:
    """Open the stores of a database. With jobs, it is the whole queue, which needs the server
    packages."""
    from trimtab_serve.forgetting.postgres_records import PostgresErasureRecords
    from trimtab_serve.queue.postgres.erasure import PostgresErasableQueue

    if with_jobs:
        from trimtab_serve.queue.postgres.queue import PostgresMessageQueue

        queue = await PostgresMessageQueue.connect(location)
    else:
        queue = await PostgresErasableQueue.connect(location)
    resources.push_async_callback(queue.close)
    return QueueAndSchedules(
        queue=queue,
        schedules=ScheduleStore(queue.transactions),
        records=PostgresErasureRecords(queue.borrow_connection),
    )
