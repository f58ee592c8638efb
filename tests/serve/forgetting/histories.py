"""Random histories of a tenant's sessions: forks, imports, erasures, deletions, crashes."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

from tests.golden.events import EVENTS
from tests.session.failing_stores import Wrapped
from tests.stores.events import claimed, said, sent
from trimtab.engine.log.edits import erase_message_payload
from trimtab.engine.log.event import Event, Fork, MessageAdded
from trimtab.engine.log.message import make_text_message
from trimtab.session.session import fork_stored_session
from trimtab.stores.base import Store
from trimtab.stores.export import export_session, import_session
from trimtab.stores.files import FileStore
from trimtab.stores.files.disk import session_to_folder_name
from trimtab_serve.forgetting.user_shares import list_sessions_in_queue
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.sender import with_sender
from trimtab_serve.service.service import AgentService

USERS = ("anna", "telegram:7", "telegram:77", "one")
NAMES = ("one", "two", "telegram:7", "telegram:7:2", "telegram:77", "telegram:-5", "copy", "c:1:2")
NOISE = [one.body for one in EVENTS if not isinstance(one.body, MessageAdded | Fork)]


class ScannedStore(Wrapped):
    """A store that names all sessions, so that all are read."""

    async def sessions_about(self, scope: str, subjects: Collection[str]) -> list[str]:
        del subjects
        names = [one.session for one in await self.inner.sessions(limit=10_000)]
        return [name for name in names if name.startswith(scope)]


class ScannedQueue:
    """A queue that names all sessions with messages."""

    def __init__(self, service: AgentService) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service.queue, name)

    async def search_waiting(self, prefix: str, text: str) -> list[str]:
        del text
        return await list_sessions_in_queue(self._service, prefix)


def scanned(service: AgentService) -> AgentService:
    """The same service, but everything is searched."""
    store = ScannedStore(service.store)
    return replace(service, store=store, queue=cast("MessageQueue", ScannedQueue(service)))


async def write_history(service: AgentService, pick: random.Random, steps: int = 30) -> None:
    for number in range(steps):
        sessions = [one.session for one in await service.store.sessions(limit=10_000)]
        step = pick.choice(
            (_say, _say, _say, _fork, _fork, _import, _erase, _delete, _wait, _crash)
        )
        await step(service, pick, sessions, number)


def _name(pick: random.Random) -> str:
    tenant = pick.choice(("acme", "acme", "acme", "zeta"))
    return f"{tenant}/{pick.choice(('a', 'b'))}/{pick.choice(NAMES)}"


def _message(pick: random.Random, seq: int) -> Event:
    kind = pick.random()
    if kind < 0.15:
        return Event(seq=seq, at=float(seq), body=pick.choice(NOISE))
    if kind < 0.5:
        return said(seq, f'about "anna" {seq}', role="assistant")
    if kind < 0.6:
        return claimed(seq, seq)
    text = "x" * pick.choice((3, 3, 9_000, 70_000))
    user = pick.choice((*USERS, None))
    if user is None:
        return said(seq, text)
    return sent(seq, user, text, is_private=pick.random() < 0.1)


async def _say(service: AgentService, pick: random.Random, known: list[str], number: int) -> None:
    session = _name(pick)
    first = await service.store.position(session) + 1
    count = pick.choice((1, 1, 2, 5, 12))
    await service.store.append(session, [_message(pick, first + index) for index in range(count)])


async def _fork(service: AgentService, pick: random.Random, known: list[str], number: int) -> None:
    child = _name(pick)
    if known and child not in known:
        parent = pick.choice(known)
        last = await service.store.position(parent)
        at = pick.choice((last, pick.randint(1, last)))
        await fork_stored_session(service.store, parent, child, at=at)


async def _import(
    service: AgentService, pick: random.Random, known: list[str], number: int
) -> None:
    name = _name(pick)
    if known and name not in known:
        lines = [line async for line in export_session(service.store, pick.choice(known))]
        await import_session(service.store, name, lines)


async def _erase(service: AgentService, pick: random.Random, known: list[str], number: int) -> None:
    if known:
        session = pick.choice(known)
        position = pick.randint(1, await service.store.position(session))

        def change(event: Event) -> Event:
            if event.seq != position or not isinstance(event.body, MessageAdded):
                return event
            blank = erase_message_payload(event.body.message, None)
            return replace(event, body=replace(event.body, message=blank))

        await service.store.rewrite(session, [], change)


async def _delete(
    service: AgentService, pick: random.Random, known: list[str], number: int
) -> None:
    if known and pick.random() < 0.5:
        await service.store.delete(pick.choice(known))


async def _wait(service: AgentService, pick: random.Random, known: list[str], number: int) -> None:
    message = with_sender(
        make_text_message("user", 'me, not "anna"'),
        pick.choice(USERS),
        is_private=pick.random() < 0.2,
    )
    one = InboundMessage(session=_name(pick), message=message, key=f"w{number}", at=1.0)
    await service.queue.post(one)
    if pick.random() < 0.3:
        newest = (await service.queue.pending(one.session))[-1]
        await service.queue.dead_letter_session(newest, None, "broken", [])


async def _crash(service: AgentService, pick: random.Random, known: list[str], number: int) -> None:
    """The process ends between two writes: an append is torn, and what is made from a log lost."""
    store: Store = service.store
    if known and isinstance(store, FileStore):
        session = pick.choice(known)
        await store.release(session)
        folder = store.root / session_to_folder_name(session)
        with (folder / "events.jsonl").open("ab") as log:
            log.write(b'{"version":1,"seq":999,"kind":"message","extra":{"trimtab_sender":"an')
        for name in ("events.end", "index.db"):
            (folder / name).unlink(missing_ok=True)
