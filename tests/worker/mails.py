"""Where a mail keeps its letters, so that it can be opened again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trimtab.core.message import text_message
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab.stores.store import Store
from trimtab.testing import MemoryStore
from trimtab.testing.mail import MemoryMail
from trimtab.worker.files import FileMail
from trimtab.worker.letters import Inbound, Outbound, Route
from trimtab.worker.mail import Mail

NAMES = ("memory", "files")
"""Every kind of mail; the suite in `test_mail.py` runs on each."""

S = "default/helper/one"
PHONE = Route(door="phone", address={"number": 7})


class Place(Protocol):
    name: str

    async def open(self) -> tuple[Store, Mail]: ...


@dataclass
class Memory:
    name: str = "memory"
    _opened: list[tuple[Store, Mail]] = field(default_factory=list[Any])

    async def open(self) -> tuple[Store, Mail]:
        if not self._opened:
            store = MemoryStore()
            self._opened.append((store, MemoryMail(store)))
        return self._opened[0]


@dataclass
class Files:
    root: Path
    name: str = "files"

    async def open(self, **own: Any) -> tuple[FileStore, FileMail]:
        store = FileStore(self.root, fsync=False)
        return store, await FileMail.open(store, fsync=False, **own)


@contextmanager
def made(name: str, root: Path) -> Generator[Place]:
    """A place of a kind, with nothing in it."""
    match name:
        case "memory":
            yield Memory()
        case _:
            yield Files(root)


def letter(key: str, text: str = "", *, session: str = S, route: Route | None = PHONE) -> Inbound:
    message = text_message("user", text or f"words of {key}")
    return Inbound(session=session, message=message, key=key, at=1.5, route=route)


def reply(key: str, *, session: str = S, seq: int = 1, route: Route = PHONE) -> Outbound:
    return Outbound(session=session, seq=seq, text=f"answer {key}", route=route, key=key)


async def keys(mail: Mail, session: str = S, **which: int) -> list[str]:
    return [one.key for one in await mail.pending(session, **which)]


async def numbers(mail: Mail, session: str = S) -> list[int]:
    return [one.number for one in await mail.pending(session)]


async def give_up(
    mail: Mail, session: str = S, why: str = "broken", replies: Sequence[Outbound] = ()
) -> None:
    """Let a session rest because of its newest letter."""
    newest = (await mail.pending(session))[-1]
    assert await mail.give_up(newest, None, why, replies)


async def lent(mail: Mail, *doors: str, limit: int = 10, lease: float = 60) -> list[str]:
    """Keys of what may be sent now."""
    found = await mail.outgoing(doors or ["phone"], limit=limit, lease=lease)
    return [one.key for one in found]


async def claimed(store: Store, session: str = S, *, times: int = 1) -> int:
    """A session with so many turns claimed; the newest epoch."""
    opened = await Session.create(store, session, model="gpt-4o")
    for _ in range(times):
        await opened.claim()
    return opened.window.epoch
