"""What an operator makes a store forget, beside the processes that serve it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.session import Session
from trimtab.stores.errors import SessionBusy
from trimtab.stores.files import FileStore
from trimtab.stores.store import Store
from trimtab.worker import control
from trimtab.worker.erasing import Beside, from_mail
from trimtab.worker.erasing import erase as erase_in
from trimtab.worker.files import FileMail
from trimtab.worker.files_log import FOLDER as MAIL
from trimtab.worker.files_log import MailBusy
from trimtab.worker.mail import Letters
from trimtab.worker.naming import address_of
from trimtab.worker.schedules.files import FOLDER as SCHEDULES
from trimtab.worker.schedules.files import FileSchedules
from trimtab.worker.schedules.schedules import Schedules
from trimtab.worker.schedules.tools import forgetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What may hold something of a session besides its log."""

    mail: Letters | None = None
    """Letters and replies; None where there are none."""
    schedules: Schedules | None = None
    """What its tools have made; None where there is nothing of the kind."""

    @property
    def beside(self) -> list[Beside]:
        """What must forget a message with the log."""
        found = [from_mail(self.mail)] if self.mail is not None else []
        return [*found, forgetting(self.schedules)] if self.schedules is not None else found


async def erase(
    place: str, store: Store, session: str, handle: str, *, why: str = ""
) -> tuple[Sequence[str], Sequence[str]]:
    """Destroy a message; returns what is gone, and the forks that keep copies.

    Where a process serves from the folder, that is asked to. Raises `LookupError`, `SessionBusy`,
    and what `control.ask` does.
    """
    try:
        async with kept(place, store, session) as found:
            opened = await Session.open(store, session, policy="full")
            done = await erase_in(opened, handle, why=why, beside=found.beside)
            return done.handles, done.forks
    except MailBusy:
        wanted = control.Request(verb="erase", session=session, handle=handle, why=why)
        told = await control.ask(Path(place), wanted)
        return told["handles"], told["forks"]
    except SessionBusy as busy:
        raise SessionBusy(f"{busy}. If that is a chat, type there: /erase {handle}") from busy


async def delete(place: str, store: Store, session: str) -> None:
    """Remove a session and all that waits in it. Where a process serves from the folder, that is
    asked to."""
    try:
        async with kept(place, store, session) as found:
            if found.mail is not None and await found.mail.pending(session, limit=1):
                # A turn may run in another process: it must not leave replies behind our back.
                await (await Session.open(store, session, policy="full")).claim()
            if found.schedules is not None:
                await found.schedules.forget(session)
            if found.mail is not None:
                await found.mail.forget(session)
            await store.delete(session)
    except MailBusy:
        await control.ask(Path(place), control.Request(verb="delete", session=session))


@asynccontextmanager
async def kept(place: str, store: Store, session: str) -> AsyncGenerator[Kept]:
    """What else is kept of a session. Raises `MailBusy` where a process that serves has it."""
    async with AsyncExitStack() as held:
        if address_of(session) is None:
            yield Kept()  # it is not served, and never was
        elif isinstance(store, FileStore):
            yield await _in_folder(store, held)
        else:
            yield await _in_database(place, held)


async def _in_folder(store: FileStore, held: AsyncExitStack) -> Kept:
    if not (store.root / MAIL).exists():
        return Kept()
    mail = await FileMail.open(store)
    held.push_async_callback(mail.close)
    if not (store.root / SCHEDULES).exists():
        return Kept(mail=mail)
    find = store.find_key
    schedules = await FileSchedules.open(store.root, post=mail.post, find_key=find)
    held.push_async_callback(schedules.close)
    return Kept(mail=mail, schedules=schedules)


async def _in_database(place: str, held: AsyncExitStack) -> Kept:
    from trimtab.worker.postgres.forgetting import PostgresLetters
    from trimtab.worker.schedules.postgres import PostgresSchedules

    async def never(*_: Any) -> bool:
        raise AssertionError("whoever only forgets posts nothing")

    mail = await PostgresLetters.connect(place)
    held.push_async_callback(mail.close)
    return Kept(mail=mail, schedules=PostgresSchedules(mail.lend, never))
