"""What an operator makes a store forget, beside the processes that serve it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trimtab.errors import SessionLockedByOtherProcess
from trimtab.server import control_files, forgetting
from trimtab.server.erasure_records import BY_COMMAND_LINE, ErasureRecords, FileErasureRecords
from trimtab.server.events.bus import LocalEventBus
from trimtab.server.forgetting import ErasureTotals, recorded_erasure
from trimtab.server.message_erasure import EraseHook, build_queue_erase_hook
from trimtab.server.message_erasure import erase_message_and_copies as erase_in
from trimtab.server.queue.protocol import ErasableQueue, MessageQueue
from trimtab.server.queue.sqlite import SqliteMessageQueue
from trimtab.server.schedules.protocol import ScheduleStore
from trimtab.server.schedules.sqlite import SqliteScheduleStore
from trimtab.server.schedules.tools import build_erased_call_schedules_hook
from trimtab.server.service import AgentService
from trimtab.server.sqlite.database import QueueInUse, has_server_data
from trimtab.server.tenant_agent_session_ids import parse_session_address
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.stores.factory import is_database_address
from trimtab.stores.files import FileStore

SEARCH_TIMEOUT_S = 3_600.0
"""Seconds that a server may take to look through all logs for what is a user's."""


PrepareService = Callable[[AgentService], None]
"""Adds to a service what else must forget with it."""


def do_nothing_to(_: AgentService) -> None:
    """Nothing else must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAndSchedules:
    """What may hold something of a session besides its log."""

    queue: ErasableQueue | None = None
    """Messages and replies; None where there are none."""
    schedules: ScheduleStore | None = None
    """What its tools have made; None where there is nothing of the kind."""
    records: ErasureRecords | None = None
    """Where it is recorded what was erased; None where it is not."""

    @property
    def erase_hooks(self) -> list[EraseHook]:
        """What must forget a message with the log."""
        found = [build_queue_erase_hook(self.queue)] if self.queue is not None else []
        return (
            [*found, build_erased_call_schedules_hook(self.schedules)]
            if self.schedules is not None
            else found
        )


async def erase_stored_message(
    location: str, store: Store, session: str, handle: str, *, why: str = ""
) -> tuple[Sequence[str], Sequence[str]]:
    """Destroy a message; returns what is gone, and the forks that keep copies.

    Where a process serves from the folder, that is asked to. Raises `LookupError`,
    `SessionLockedByOtherProcess`, and what `control.ask` does.
    """
    try:
        async with open_queue_and_schedules(location, store, session) as found:
            by = BY_COMMAND_LINE
            async with recorded_erasure(found.records, "message", session, by=by) as totals:
                opened = await Session.open(store, session, policy="full")
                done = await erase_in(opened, handle, why=why, hooks=found.erase_hooks)
                totals.messages = len(done.positions)
            return done.handles, done.forks
    except QueueInUse:
        wanted = control_files.ControlRequest(verb="erase", session=session, handle=handle, why=why)
        told = await control_files.send_control_request(Path(location), wanted)
        return told["handles"], told["forks"]
    except SessionLockedByOtherProcess as busy:
        raise SessionLockedByOtherProcess(
            f"{busy}. If that is a chat, type there: /erase {handle}"
        ) from busy


async def delete_stored_session(location: str, store: Store, session: str) -> None:
    """Remove a session and all that waits in it. Where a process serves from the folder, that is
    asked to."""
    try:
        async with (
            open_queue_and_schedules(location, store, session) as found,
            recorded_erasure(found.records, "session", session, by=BY_COMMAND_LINE) as totals,
        ):
            if found.queue is not None and await found.queue.pending(session, limit=1):
                # A turn may run in another process: it must not leave replies behind our back.
                await (await Session.open(store, session, policy="full")).claim_turn()
            if found.schedules is not None:
                await found.schedules.forget_session(session)
            if found.queue is not None:
                await found.queue.forget_session(session)
            await store.delete(session)
            totals.sessions = 1
    except QueueInUse:
        await control_files.send_control_request(
            Path(location), control_files.ControlRequest(verb="delete", session=session)
        )


async def erase_stored_user(
    location: str, store: Store, tenant: str, user: str, *, prepare: PrepareService = do_nothing_to
) -> ErasureTotals:
    """Forget a user of a tenant. Where a process serves from the folder, that is asked to."""
    request = control_files.ControlRequest(verb="erase_user", tenant=tenant, user=user)
    try:
        async with open_idle_service(location, store) as service:
            prepare(service)
            return await forgetting.erase_user(service, tenant, user, by=BY_COMMAND_LINE)
    except QueueInUse:
        return await _ask_server(location, request)


async def erase_stored_tenant(
    location: str, store: Store, tenant: str, *, prepare: PrepareService = do_nothing_to
) -> ErasureTotals:
    """Forget a tenant. Where a process serves from the folder, that is asked to."""
    request = control_files.ControlRequest(verb="erase_tenant", tenant=tenant)
    try:
        async with open_idle_service(location, store) as service:
            prepare(service)
            return await forgetting.erase_tenant(service, tenant, by=BY_COMMAND_LINE)
    except QueueInUse:
        return await _ask_server(location, request)


async def _ask_server(location: str, request: control_files.ControlRequest) -> ErasureTotals:
    told = await control_files.send_control_request(
        Path(location), request, timeout_s=SEARCH_TIMEOUT_S
    )
    return ErasureTotals(**told)


@asynccontextmanager
async def open_idle_service(location: str, store: Store) -> AsyncGenerator[AgentService]:
    """Sessions, queue, schedules and records as a server has them, with nobody who answers. Raises
    `QueueInUse` where a process that serves has the folder."""
    async with AsyncExitStack() as held:
        if isinstance(store, FileStore):
            found = await _open_folder_stores(store, held, create=True)
        else:
            found = await _open_database_stores(location, held, with_jobs=True)
        queue = cast("MessageQueue", found.queue)
        service = AgentService(agents={}, store=store, queue=queue, event_bus=LocalEventBus())
        service.erasure_records, service.schedules = found.records, found.schedules
        if found.schedules is not None:
            service.delete_hooks.append(found.schedules.forget_session)
            service.erase_hooks.append(build_erased_call_schedules_hook(found.schedules))
        held.push_async_callback(service.sessions.close)
        yield service


@asynccontextmanager
async def open_erasure_records(location: str, store: Store) -> AsyncGenerator[ErasureRecords]:
    """What was erased in a store."""
    async with AsyncExitStack() as held:
        if isinstance(store, FileStore):
            yield FileErasureRecords(store.root)
        else:
            found = await _open_database_stores(location, held)
            assert found.records is not None  # noqa: S101 - a database has them
            yield found.records


@asynccontextmanager
async def open_queue_and_schedules(
    location: str, store: Store, session: str
) -> AsyncGenerator[QueueAndSchedules]:
    """What else is kept of a session. Raises `QueueInUse` where a process that serves has it."""
    async with AsyncExitStack() as held:
        if parse_session_address(session) is None:
            # It is not served, and never was: nothing else is kept of it.
            if not isinstance(store, FileStore) and not is_database_address(location):
                yield QueueAndSchedules()  # in memory
                return
            async with open_erasure_records(location, store) as records:
                yield QueueAndSchedules(records=records)
        elif isinstance(store, FileStore):
            yield await _open_folder_stores(store, held)
        else:
            yield await _open_database_stores(location, held)


async def _open_folder_stores(
    store: FileStore, resources: AsyncExitStack, *, create: bool = False
) -> QueueAndSchedules:
    records = FileErasureRecords(store.root)
    if not create and not has_server_data(store.root):
        return QueueAndSchedules(records=records)
    queue = await SqliteMessageQueue.open(store)
    resources.push_async_callback(queue.close)
    return QueueAndSchedules(queue=queue, schedules=SqliteScheduleStore(queue), records=records)


async def _open_database_stores(
    location: str, resources: AsyncExitStack, *, with_jobs: bool = False
) -> QueueAndSchedules:
    """With jobs it is the whole queue, which needs the packages of a server."""
    from trimtab.server.postgres.erasure_records import PostgresErasureRecords
    from trimtab.server.queue.postgres_erasure import PostgresErasableQueue
    from trimtab.server.schedules.postgres import PostgresScheduleStore

    async def never(*_: Any) -> bool:
        raise AssertionError("whoever only forgets posts nothing")

    if with_jobs:
        from trimtab.server.queue.postgres import PostgresMessageQueue

        queue = await PostgresMessageQueue.connect(location)
    else:
        queue = await PostgresErasableQueue.connect(location)
    resources.push_async_callback(queue.close)
    return QueueAndSchedules(
        queue=queue,
        schedules=PostgresScheduleStore(queue.borrow_connection, never),
        records=PostgresErasureRecords(queue.borrow_connection),
    )
