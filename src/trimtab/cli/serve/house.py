"""Everything that serving needs, opened in order and given back in the other."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from trimtab.agent.agent import Agent, running
from trimtab.cli.chat.history import forget_typed, history_file, said_by_users
from trimtab.cli.serve.crew import Crew
from trimtab.cli.serve.doors import delivering, doors_of
from trimtab.stores.choose import open_store
from trimtab.stores.files import FileStore
from trimtab.stores.store import Store
from trimtab.worker.control import obey
from trimtab.worker.delivery import Delivery
from trimtab.worker.door import Door
from trimtab.worker.erasing import Erasure
from trimtab.worker.files import FileMail
from trimtab.worker.live import LocalLive
from trimtab.worker.local import LocalTurns
from trimtab.worker.service import Service

CONNECTIONS = 16
"""To a database at most, for sessions; the mail has its own."""
log = logging.getLogger("trimtab.serve")
FLEET = "turns on PostgreSQL need more packages: pip install 'trimtab[fleet]'"


class Turns(Protocol):
    """Who runs what is due."""

    async def drain(self, seconds: float) -> int:
        """Begin nothing more and let what runs end; returns how many turns were cut off."""
        ...


@dataclass(slots=True, kw_only=True)
class House:
    """What is open."""

    service: Service
    """Agents, sessions and mail."""
    due: Callable[[str], Awaitable[None]]
    """Lets a turn run although nothing new was said."""
    turns: Turns | None = None
    """Who runs turns here; None where others do."""
    doors: list[tuple[str, Door]] = field(default_factory=list[tuple[str, Door]])
    """Ways in and out, each with its agent; the clock's is everybody's."""
    work: dict[str, Callable[[], Coroutine[Any, Any, None]]] = field(
        default_factory=dict[str, Callable[[], Coroutine[Any, Any, None]]]
    )
    """What runs until it is cancelled, by name."""
    resumed: int = 0
    """Sessions with messages that an earlier process has left."""


@asynccontextmanager
async def opened(crew: Crew, *, turns: bool = True, doors: bool = True) -> AsyncGenerator[House]:
    """The house of these agents."""
    async with AsyncExitStack() as held:
        store = await open_store(crew.place, connections=min(CONNECTIONS, crew.serve.at_once + 2))
        held.push_async_callback(store.close)
        agents: dict[str, Agent] = {}
        for name, member in crew.members.items():
            agents[name] = await held.enter_async_context(
                running(member.spec, member.folder, store=store)
            )
        make = _on_database if crew.database else _on_files
        house = await make(crew, store, agents, turns)
        held.push_async_callback(house.service.close)
        _forget_typed(house.service)
        await _open_doors(crew, house, held, run=doors)
        if isinstance(house.turns, LocalTurns):
            house.resumed = await house.turns.resume()
        yield house


async def _on_files(crew: Crew, store: Store, agents: dict[str, Agent], turns: bool) -> House:
    if not turns:
        raise ValueError(
            "--no-turns is for a fleet on PostgreSQL; on files one process does it all"
        )
    assert isinstance(store, FileStore)  # noqa: S101 - what a place that is no database opens as
    mail = await FileMail.open(store)
    await store.recover()
    service = Service(
        agents=agents,
        store=store,
        mail=mail,
        live=LocalLive(),
        max_waiting=crew.serve.max_waiting,
    )
    own = LocalTurns(service, at_once=crew.serve.at_once, tenant_at_once=crew.serve.tenant_at_once)
    mail.due = own.due

    async def due(session: str) -> None:
        own.due(session)

    house = House(service=service, due=due, turns=own)
    house.work["requests of this machine"] = partial(obey, store.root, service)
    return house


async def _on_database(crew: Crew, store: Store, agents: dict[str, Agent], turns: bool) -> House:
    try:
        from trimtab.worker.fleet import Fleet
        from trimtab.worker.notify import PostgresLive
        from trimtab.worker.postgres.mail import PostgresMail
        from trimtab.worker.postgres.queue import Due
    except ModuleNotFoundError as error:
        if error.name not in ("procrastinate", "psycopg", "psycopg_pool"):
            raise
        raise ValueError(FLEET) from error
    mail = await PostgresMail.connect(crew.place)
    live = PostgresLive(crew.place)
    service = Service(
        agents=agents, store=store, mail=mail, live=live, max_waiting=crew.serve.max_waiting
    )
    live.stopped = service.stop_here

    async def due(session: str) -> None:
        await mail.defer(Due(session=session))

    house = House(service=service, due=due)
    house.work["live"] = live.run
    if turns:
        serve = crew.serve
        fleet = Fleet(service, mail, at_once=serve.at_once, tenant_at_once=serve.tenant_at_once)
        house.turns = fleet
        house.work["turns"] = fleet.run
    return house


def _forget_typed(service: Service) -> None:
    """What was typed into chats by whoever runs this leaves that file with the message."""
    path = history_file(os.environ)

    async def forget(said: Collection[str]) -> None:
        try:
            await asyncio.to_thread(forget_typed, path, said)
        except OSError as error:
            log.warning("%s may keep a line that was erased elsewhere: %s", path, error)

    async def deleted(session: str) -> None:
        if path.exists() and await service.store.position(session):
            await forget(await said_by_users(service.store, session))

    async def erased(gone: Erasure) -> None:
        await forget(gone.said)

    service.forgetting.append(deleted)
    service.erasing.append(erased)


async def _open_doors(crew: Crew, house: House, held: AsyncExitStack, *, run: bool) -> None:
    """Doors, and what leaves through them. Those that do not run still deliver."""
    house.doors = await doors_of(crew, house.service, now=time.time())
    for agent, door in house.doors:
        held.push_async_callback(door.close)
        if run:
            house.work[f"{door.name} of {agent}"] = door.run
    ways = delivering(house.doors, alone=not crew.database)
    if not ways:
        return
    delivery = Delivery(house.service.mail, ways)
    house.service.mail.replied = delivery.due
    house.work["delivery"] = delivery.run
