"""Where a queue keeps its messages, so that it can be opened again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.serve.queue.memory_queue import MemoryQueue
from trimtab.engine.log.message import make_text_message
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

NAMES = ("memory", "files")
"""Every kind of queue; the suite in `test_queue.py` runs on each."""

S = "default/helper/one"
PHONE = ReplyRoute(channel="phone", address={"number": 7})


class Place(Protocol):
    name: str

    async def open(self) -> tuple[Store, MessageQueue]: ...


@dataclass
class Memory:
    name: str = "memory"
    _opened: list[tuple[Store, MessageQueue]] = field(default_factory=list[Any])

    async def open(self) -> tuple[Store, MessageQueue]:
        if not self._opened:
            store = MemoryStore()
            self._opened.append((store, MemoryQueue(store)))
        return self._opened[0]


@dataclass
class Files:
    root: Path
    name: str = "files"

    async def open(self, **own: Any) -> tuple[FileStore, SqliteMessageQueue]:
        store = FileStore(self.root, fsync=False)
        return store, await SqliteMessageQueue.open(store, fsync=False, **own)


@contextmanager
def made(name: str, root: Path) -> Generator[Place]:
    """A place of a kind, with nothing in it."""
    match name:
        case "memory":
            yield Memory()
        case _:
            yield Files(root)


def inbound(
    key: str, text: str = "", *, session: str = S, route: ReplyRoute | None = PHONE
) -> InboundMessage:
    message = make_text_message("user", text or f"words of {key}")
    return InboundMessage(session=session, message=message, key=key, at=1.5, route=route)


def reply(
    key: str, *, session: str = S, seq: int = 1, route: ReplyRoute = PHONE
) -> OutboundMessage:
    return OutboundMessage(session=session, seq=seq, text=f"answer {key}", route=route, key=key)


async def keys(queue: MessageQueue, session: str = S, **which: int) -> list[str]:
    return [one.key for one in await queue.pending(session, **which)]


async def numbers(queue: MessageQueue, session: str = S) -> list[int]:
    return [one.number for one in await queue.pending(session)]


async def give_up(
    queue: MessageQueue,
    session: str = S,
    why: str = "broken",
    replies: Sequence[OutboundMessage] = (),
) -> None:
    """Let a session rest because of its newest message."""
    newest = (await queue.pending(session))[-1]
    assert await queue.dead_letter_session(newest, None, why, replies)


async def lent(
    queue: MessageQueue, *channels: str, limit: int = 10, lease: float = 60
) -> list[str]:
    """Keys of what may be sent now."""
    replies = await queue.lease_replies(channels or ["phone"], limit=limit, lease_s=lease)
    return [one.key for one in replies]


async def claimed(store: Store, session: str = S, *, times: int = 1) -> int:
    """A session with so many turns claimed; the newest epoch."""
    open_session = await Session.create(store, session, model="gpt-4o")
    for _ in range(times):
        await open_session.recorder.claim()
    return open_session.window.accounting.epoch
