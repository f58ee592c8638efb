"""What an operator makes a store forget, beside the processes that serve it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import SessionLockedByOtherProcess
from trimtab.server import control_files
from trimtab.server.message_erasure import EraseHook, build_queue_erase_hook
from trimtab.server.message_erasure import erase_message_and_copies as erase_in
from trimtab.server.queue.protocol import ErasableQueue
from trimtab.server.queue.sqlite import SqliteMessageQueue
from trimtab.server.schedules.protocol import ScheduleStore
from trimtab.server.schedules.sqlite import SqliteScheduleStore
from trimtab.server.schedules.tools import build_erased_call_schedules_hook
from trimtab.server.sqlite.database import QueueInUse, has_server_data
from trimtab.server.tenant_agent_session_ids import parse_session_address
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAndSchedules:
    """What may hold something of a session besides its log."""

    queue: ErasableQueue | None = None
    """Messages and replies; None where there are none."""
    schedules: ScheduleStore | None = None
    """What its tools have made; None where there is nothing of the kind."""

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
            opened = await Session.open(store, session, policy="full")
            done = await erase_in(opened, handle, why=why, hooks=found.erase_hooks)
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
        async with open_queue_and_schedules(location, store, session) as found:
            if found.queue is not None and await found.queue.pending(session, limit=1):
                # A turn may run in another process: it must not leave replies behind our back.
                await (await Session.open(store, session, policy="full")).claim_turn()
            if found.schedules is not None:
                await found.schedules.forget_session(session)
            if found.queue is not None:
                await found.queue.forget_session(session)
            await store.delete(session)
    except QueueInUse:
        await control_files.send_control_request(
            Path(location), control_files.ControlRequest(verb="delete", session=session)
        )


@asynccontextmanager
async def open_queue_and_schedules(
    location: str, store: Store, session: str
) -> AsyncGenerator[QueueAndSchedules]:
    """What else is kept of a session. Raises `QueueInUse` where a process that serves has it."""
    async with AsyncExitStack() as held:
        if parse_session_address(session) is None:
            yield QueueAndSchedules()  # it is not served, and never was
        elif isinstance(store, FileStore):
            yield await _open_folder_stores(store, held)
        else:
            yield await _open_database_stores(location, held)


async def _open_folder_stores(store: FileStore, resources: AsyncExitStack) -> QueueAndSchedules:
    if not has_server_data(store.root):
        return QueueAndSchedules()
    queue = await SqliteMessageQueue.open(store)
    resources.push_async_callback(queue.close)
    return QueueAndSchedules(queue=queue, schedules=SqliteScheduleStore(queue))


async def _open_database_stores(location: str, resources: AsyncExitStack) -> QueueAndSchedules:
    from trimtab.server.queue.postgres_erasure import PostgresErasableQueue
    from trimtab.server.schedules.postgres import PostgresScheduleStore

    async def never(*_: Any) -> bool:
        raise AssertionError("whoever only forgets posts nothing")

    queue = await PostgresErasableQueue.connect(location)
    resources.push_async_callback(queue.close)
    return QueueAndSchedules(
        queue=queue, schedules=PostgresScheduleStore(queue.borrow_connection, never)
    )
